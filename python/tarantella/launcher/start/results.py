"""How ranks and jobs ended, and which rank's failure was the first.

One failure ends all ranks, often within microseconds, and the first to end is not always the first to fail. So a rank reports
on a pipe why it ends: by its own failure ("primary"), or because another one failed ("secondary").
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tarantella.launcher.start.process import ExitStatus

MAX_MESSAGE = 1000
HOPELESS = re.compile(r"(SyntaxError|IndentationError|TabError|ImportError|ModuleNotFoundError)\b")
"""How the message of an error begins that every start of the same script meets at once."""


@dataclass(frozen=True)
class Report:
    """The line that a rank writes when its script fails: `{"kind": "primary"|"secondary", "message": "ValueError: ..."}`."""

    secondary: bool
    message: str
    step: int | None = None
    """The step of training, if the rank was in `fit`."""


@dataclass(frozen=True)
class JobResult:
    """How a job ended."""

    code: int
    """The launcher's exit code."""
    reason: str = ""
    """Why it failed."""
    interrupted: bool = False
    """Whether the launcher was asked to end it."""
    started: bool = True
    """False: the ranks could not be started."""
    killed: frozenset[int] = frozenset()
    """Ranks that were killed by a signal which the launcher had not sent."""
    failed: int | None = None
    """The rank whose failure was the first."""
    error: str = ""
    """The exception that ended its script, and the step, if it was an exception of its own."""
    trained_alone: bool = False
    """Whether each rank has trained for itself, as it would after a restart."""


@dataclass(frozen=True)
class RankExit:
    """How one rank ended."""

    rank: int
    pid: int
    status: ExitStatus
    signalled: bool
    """The launcher had sent it a signal before, so its status does not tell why it ended."""
    report: Report | None
    host: str = ""
    """Where it ran, if the job has several hosts."""

    @property
    def failed_first(self) -> bool:
        """Whether it may have failed of itself, not because another rank failed."""
        if self.signalled:
            return self.report is not None and not self.report.secondary
        return self.report is None or not self.report.secondary

    @property
    def killed(self) -> bool:
        """Whether a signal killed it that the launcher had not sent."""
        return bool(self.status.signal) and not self.signalled

    @property
    def error(self) -> str:
        """The exception of its own that ended its script, and the step; empty if it said none."""
        if self.report is None or self.report.secondary:
            return ""
        return self.report.message + ("" if self.report.step is None else f" (step {self.report.step})")

    @property
    def exit_code(self) -> int:
        return self.status.exit_code if not self.signalled else self.status.code or 1

    def __str__(self) -> str:
        how = "failed" if self.signalled and self.status.signal else str(self.status)
        message = f": {self.report.message}" if self.report and self.report.message else ""
        where = f" on {self.host}" if self.host else ""
        return f"rank {self.rank} (pid {self.pid}{where}) {how}{message}"


def read_report(lines: Iterable[bytes]) -> Report | None:
    """The first line that is a report. A program may have written other lines to that descriptor."""
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("kind") in ("primary", "secondary"):
            message = " ".join(str(found.get("message") or "").split())
            step = found.get("step")
            return Report(found["kind"] == "secondary", message[:MAX_MESSAGE], step if isinstance(step, int) else None)
    return None


def first_failure(exits: Sequence[RankExit]) -> RankExit | None:
    """The rank to name in the error: the first that failed of itself, else the first that failed. exits: in their order."""
    failed = [rank for rank in exits if not rank.status.success]
    return next((rank for rank in failed if rank.failed_first), failed[0] if failed else None)
