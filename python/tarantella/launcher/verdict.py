"""Which rank is to blame when a job fails.

One failure brings all ranks down, often within microseconds, and the first to end is not always the first
to fail. So ranks say on a pipe why they end: of themselves (primary), or as another one did (secondary).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tarantella.launcher.process import Outcome

MAX_MESSAGE = 1000


@dataclass(frozen=True)
class Report:
    """A rank's last words: the line `{"kind": "primary"|"secondary", "message": "ValueError: ..."}`."""

    secondary: bool
    message: str


@dataclass(frozen=True)
class Ended:
    """How a job ended, all ranks together."""

    code: int
    """Of the launcher."""
    why: str = ""
    """What it failed of."""
    interrupted: bool = False
    """The launcher was asked to end it."""
    started: bool = True
    """Else there is nothing to run."""
    lost: frozenset[int] = frozenset()
    """Ranks that a signal has killed which was none of the launcher's."""


@dataclass(frozen=True)
class Ending:
    """How one rank ended, in the order in which ranks did."""

    rank: int
    pid: int
    outcome: Outcome
    told_to_end: bool
    """The launcher had sent it a signal before, so that how it ended says nothing by itself."""
    report: Report | None
    host: str = ""
    """Where it ran, if the job has several hosts."""

    @property
    def failed_by_itself(self) -> bool:
        if self.told_to_end:
            return self.report is not None and not self.report.secondary
        return self.report is None or not self.report.secondary

    @property
    def killed(self) -> bool:
        """By a signal that was not the launcher's."""
        return bool(self.outcome.signal) and not self.told_to_end

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code if not self.told_to_end else self.outcome.code or 1

    def __str__(self) -> str:
        how = "failed" if self.told_to_end and self.outcome.signal else str(self.outcome)
        message = f": {self.report.message}" if self.report and self.report.message else ""
        where = f" on {self.host}" if self.host else ""
        return f"rank {self.rank} (pid {self.pid}{where}) {how}{message}"


def read_report(lines: Iterable[bytes]) -> Report | None:
    """The first line that is a report; whatever else a program has written to that descriptor is skipped."""
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("kind") in ("primary", "secondary"):
            message = " ".join(str(found.get("message") or "").split())
            return Report(found["kind"] == "secondary", message[:MAX_MESSAGE])
    return None


def culprit(endings: Sequence[Ending]) -> Ending | None:
    """The rank to name: the first that failed by itself, else the first that ended badly."""
    bad = [ending for ending in endings if not ending.outcome.good]
    return next((ending for ending in bad if ending.failed_by_itself), bad[0] if bad else None)
