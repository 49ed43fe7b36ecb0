"""Prints how the stages of tools/test ended: result, seconds, numbers of tests, and which tests failed, and why.

Exit code 1 if a stage failed or did not run. Needs Python without any packages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

LOGS = Path("build/log")
STAGES = Path(__file__).with_name("CMakeLists.txt")
SHOWN_LINES = 40
CTEST = re.compile(r"^\d+% tests passed, (\d+) tests? failed out of (\d+)")
PROCESSES = re.compile(r"^\d+ tests, by \d+ processes$")
PYTEST = re.compile(r"^=* ?(\d+ (?:passed|failed|errors?|skipped|deselected)\b.*) in [\d.]+s")


class Stage(NamedTuple):
    """A stage that has run."""

    name: str
    code: int
    seconds: int
    log: list[str]

    @property
    def result(self) -> str:
        if self.code != 0:
            return "FAILED"
        return "unsteady" if any(line.startswith("UNSTEADY: ") for line in self.log) else "ok"

    @property
    def counts(self) -> str:
        """The numbers of tests in the closing lines of ctest and pytest."""
        found = []
        for line in self.log:
            if match := CTEST.match(line):
                found.append(f"{match[2]} tests" + (f", {match[1]} failed" if match[1] != "0" else ""))
            elif PROCESSES.match(line):
                found.append(line)
            elif match := PYTEST.match(line):
                found.append(match[1])
        return "; ".join(found)

    def reasons(self) -> list[str]:
        """Lines that name the tests that failed, and why: a log of CI may be cut before its last lines."""
        found, last = [], -1
        for number, line in enumerate(self.log):
            if re.search(r": Failure$|: error: |^E   ", line):
                last = number + (4 if line.endswith(": Failure") else 0)
            if number <= last:
                found.append(line[:300])
        listed = False
        for line in self.log:
            listed = (listed and line != "") or line == "The following tests FAILED:"
            if listed or re.match(r"FAILED|ERROR|UNSTEADY: ", line):
                found.append(line[:300])
        return found[:SHOWN_LINES]


def stage(name: str) -> Stage:
    result, log = LOGS / f"{name}.result", LOGS / f"{name}.log"
    if not result.exists():
        return Stage(name, 1, 0, ["it did not run, or was ended"])
    code, seconds = map(int, result.read_text().split())
    return Stage(name, code, seconds, log.read_text(errors="replace").splitlines())


def main() -> int:
    stages = [stage(name) for name in re.findall(r"^stage\(([^ )]+)", STAGES.read_text(), re.MULTILINE)]
    print("\nSummary            result       time   tests")
    for one in stages:
        print(f"  {one.name:16} {one.result:8} {one.seconds:5} s   {one.counts}".rstrip())
    for one in stages:
        if one.result != "ok":
            print(f"\n-- {one.name}:", *(one.reasons() or one.log[-SHOWN_LINES:]), sep="\n")
    return int(any(one.code for one in stages))


if __name__ == "__main__":
    sys.exit(main())
