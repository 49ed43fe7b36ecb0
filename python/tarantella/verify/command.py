"""Starts the runs of `tarantella verify` with the launcher, and prints the report."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tarantella.launcher import restarts
from tarantella.launcher.base.words import UsageError, counted
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.output import STDERR, STDOUT, Console
from tarantella.verify.fingerprints import UnreadableRunError, read
from tarantella.verify.options import VerifyOptions, parse_verify
from tarantella.verify.report import Report, Run

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
