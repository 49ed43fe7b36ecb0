"""Starts the runs of `tarantella verify` with the launcher, and prints the report."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tarantella.launcher import restarts
from tarantella.launcher.base.words import UsageError, counted
from tarantella.launcher.command_line.arguments import MAX_RANKS, Parser, setting
from tarantella.launcher.command_line.command import OWN_PYTHON
from tarantella.launcher.command_line.options import Cleanup, Options, parse, split
from tarantella.launcher.show.output import STDERR, STDOUT, Console
from tarantella.verify.fingerprints import UnreadableRunError, read
from tarantella.verify.report import Report, Run

SHARDS = 8
EXAMPLE = "tarantella verify --ranks 1,2,4 -- train.py"


@dataclass(frozen=True)
class VerifyOptions:
    """A checked command line."""

    ranks: tuple[int, ...]
    shards: int
    json: bool
    own_folders: bool
    keep: Path | None
    """Where the fingerprints stay."""
    launcher_words: tuple[str, ...]
    script: tuple[str, ...]

    def options(self, run: int, file: Path) -> Options:
        """The launcher's, of one of the runs. Raises UsageError."""
        own = ["-n", str(self.ranks[run]), "--reproducible", str(self.shards), "-x", f"TNT_FINGERPRINT={file}"]
        options = parse([*self.launcher_words, *own, "--", *self.script])
        if isinstance(options, Cleanup):
            raise UsageError("--cleanup: not with verify")
        if options.dry_run:
            raise UsageError("--dry-run: not with verify")
        return options


def parse_verify(argv: Sequence[str]) -> VerifyOptions:
    """Raises UsageError; SystemExit for --help."""
    before, _, after = split(argv)
    parser = Parser(
        prog="tarantella verify",
        usage="tarantella verify [--ranks 1,2,4,8] [options] [options of tarantella] -- SCRIPT [args...]",
        description="Runs SCRIPT at several numbers of ranks, one after another, and reports whether weights, optimizer state, "
        "losses and metrics of its tnt.Model are bitwise equal after every epoch. Exit code 0: equal; 1: different; "
        "2: a run has failed.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--ranks",
        metavar="LIST",
        type=_numbers,
        default=(1, 2, 4, 8),
        help="numbers of ranks; one may occur twice (default: 1,2,4,8); all runs must equal the first",
    )
    add(
        "--reproducible",
        metavar="V",
        type=setting("TNT_REPRODUCIBLE"),
        help=f"number of shards into which batches are cut (default: {SHARDS}, or the largest number of ranks if larger)",
    )
    add("--json", action="store_true", help="report in JSON on standard output; what the script prints goes to standard error")
    add(
        "--own-folders",
        action="store_true",
        help="run the script in an empty folder each time, and remove the folder afterwards",
    )
    add("--keep", metavar="FOLDER", type=Path, help="keep the fingerprints of the runs in FOLDER")
    given, words = parser.parse_known_args(before)
    for word in words:
        if word in ("-n", "--devices-per-node", "--n-per-node", "--npernode"):
            raise UsageError(f"{word}: say with --ranks how many ranks each run has, as in {EXAMPLE}")
    script = after
    if given.own_folders and after and after[0] in ("-m", *OWN_PYTHON):
        raise UsageError(f"--own-folders: {after[0]!r} finds nothing in an empty folder: give a script's file, as in {EXAMPLE}")
    if given.own_folders and after and os.path.exists(after[0]):
        script = [os.path.abspath(after[0]), *after[1:]]
    shards = int(given.reproducible) if given.reproducible else max(SHARDS, 1 << (max(given.ranks) - 1).bit_length())
    return VerifyOptions(
        ranks=given.ranks,
        shards=shards,
        json=given.json,
        own_folders=given.own_folders,
        keep=given.keep,
        launcher_words=tuple(words),
        script=tuple(script),
    )


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) < 2 or not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_RANKS for word in words):
        raise argparse.ArgumentTypeError(f"must be two numbers of ranks or more, such as 1,2,4, not {text!r}")
    return tuple(map(int, words))


EQUAL, DIFFERENT, FAILED = 0, 1, 2


class _Failed(Exception):
    """A run could not be compared; the text names it."""


def verify(argv: Sequence[str], console: Console) -> int:
    """Returns the exit code of the process. Raises UsageError."""
    wanted = parse_verify(argv)
    with ExitStack() as stack:
        out = stack.enter_context(_report_alone_on_stdout()) if wanted.json else STDOUT
        folder = _folder(wanted, stack)
        files = [folder / f"run{number + 1}.jsonl" for number in range(len(wanted.ranks))]
        options = [wanted.options(number, file) for number, file in enumerate(files)]
        try:
            runs = [_run(wanted, number, options[number], file, console) for number, file in enumerate(files)]
        except _Failed as failure:
            console.message(f"verify: {failure}")
            if wanted.json:
                console.write(out, json.dumps({"equal": None, "error": str(failure)}, indent=1).encode() + b"\n")
            console.drain()
            return FAILED
        report = Report(runs, wanted.shards)
        console.write(out, (report.json() + "\n" if wanted.json else report.text()).encode())
        console.drain()
    return EQUAL if report.equal else DIFFERENT


def _run(wanted: VerifyOptions, number: int, options: Options, file: Path, console: Console) -> Run:
    name = _name(wanted.ranks, number)
    file.unlink(missing_ok=True)  # of an earlier verification, if it is kept
    console.message(f"verify: run {number + 1} of {len(wanted.ranks)}: {name}")
    begin = time.monotonic()
    with _own_folder() if wanted.own_folders else ExitStack():
        ended = restarts.run(options, console)
    if ended.interrupted:
        raise _Failed(f"interrupted in run {number + 1} ({name})")
    if ended.code != 0:
        raise _Failed(f"run {number + 1} ({name}) has failed with code {ended.code}" + (ended.reason and f": {ended.reason}"))
    try:
        return Run(wanted.ranks[number], name, time.monotonic() - begin, read(file))
    except UnreadableRunError as why:
        raise _Failed(f"run {number + 1} ({name}) cannot be compared: {why}") from None


def _name(ranks: Sequence[int], number: int) -> str:
    same = [i for i, n in enumerate(ranks) if n == ranks[number]]
    again = f" (run {number + 1})" if len(same) > 1 else ""
    return counted(ranks[number], "rank") + again


def _folder(wanted: VerifyOptions, stack: ExitStack) -> Path:
    if wanted.keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tarantella-verify-")))
    try:
        wanted.keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep: cannot make {str(wanted.keep)!r}: {error.strerror}") from None
    return wanted.keep.absolute()


@contextmanager
def _own_folder() -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="tarantella-verify-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextmanager
def _report_alone_on_stdout() -> Iterator[int]:
    """In this context the output of the ranks goes to standard error. Gives the stream of the report."""
    report = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield report
    finally:
        os.dup2(report, STDOUT)
        os.close(report)
