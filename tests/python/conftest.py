"""Fixtures of the Python tests: the jobs that several tests look at, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.outcomes import Jobs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: those that are left at the end are short and keep all workers busy."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The training runs that are compared with plain Keras."""
    jobs = Jobs(tmp_path_factory.mktemp("jobs"))
    yield jobs
    jobs.close()
