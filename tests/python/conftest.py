"""Fixtures of the Python tests: the jobs that several tests look at, each started once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from support.outcomes import Jobs

SHOWN = 25  # files, the slowest first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: those that are left at the end are short and keep all workers busy."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the files that took longest, so that a suite that grows shows where."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("::")[0]] += report.duration
    if len(seconds) > SHOWN:
        terminalreporter.section("seconds of each file")
        for name, taken in seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{taken:6.0f}  {name}")


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The training runs that are compared with plain Keras."""
    jobs = Jobs(tmp_path_factory.mktemp("jobs"))
    yield jobs
    jobs.close()
