"""`tarantella status [JOB]`: what each rank of a running job does."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from tarantella.flight import lines
from tarantella.flight.words import named_ranks
from tarantella.inspection.jobs import Answers, ask_all
from tarantella.launcher.command_line.arguments import Parser

FOUND, NOTHING = 0, 1


def status(argv: Sequence[str]) -> int:
    """Returns what the process should exit with. Raises UsageError; SystemExit for --help."""
    parser = Parser(
        prog="tarantella status",
        usage="tarantella status [JOB] [--json]",
        description="Shows what each rank of a job running on this host is doing: its step, its current call, which rank it "
        "waits for, and since when. Without JOB: shows the only job, or lists all. Exit code 1: there is none.",
        allow_abbrev=False,
    )
    parser.add_argument("job", metavar="JOB", nargs="?", type=int, help="process id of the job's launcher, `tarantella`")
    parser.add_argument("--json", action="store_true", help="print everything that is known as JSON")
    given = parser.parse_args(list(argv))
    answers = ask_all()
    found = [job for job in answers.jobs if given.job in (None, job["pid"])]
    if not found:
        print(f"tarantella: {_nothing(given.job, answers)}", file=sys.stderr)
        return NOTHING
    if given.json:
        print(json.dumps(found if given.job is None else found[0], indent=1))
    elif len(found) == 1:
        _show(found[0])
    else:
        print("\n".join(map(lines.title, found)))
        print(f"one of them: tarantella status {found[0]['pid']}")
    for pid in answers.silent:
        print(f"tarantella: {_silent(pid)}", file=sys.stderr)
    return FOUND


def _nothing(job: int | None, answers: Answers) -> str:
    if job is None:
        silent = f". {_silent(answers.silent[0])}" if answers.silent else ""
        return f"no job of yours runs on this host{silent}"
    if job in answers.strangers:
        return f"job {job} belongs to another user, and tells only that one what it does"
    if job in answers.silent:
        return _silent(job)
    running = ", ".join(str(one["pid"]) for one in answers.jobs)
    return f"there is no job {job} of yours on this host" + (f": there is {running}" if running else "")


def _silent(pid: int) -> str:
    return f"job {pid} does not answer: its launcher may be stopped"


def _show(job: dict[str, Any]) -> None:
    print(lines.title(job))
    members = [rank["rank"] for rank in job["members"]]
    if not _show_table(job):
        print("\n".join(lines.job_lines(job)[1:]))
    missing = [rank for rank in range(job["ranks"]) if rank not in members]
    if missing:
        print(f"{named_ranks(missing)}: not on this host; run `tarantella status` there")


def _show_table(job: dict[str, Any]) -> bool:
    """As a table, on a terminal; False where there is none, or no package that draws it."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    table = Table(*lines.COLUMNS)
    for row in lines.rows(job):
        table.add_row(*row)
    Console().print(table)
    return True
