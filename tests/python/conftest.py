"""Fixtures of the Python tests: the jobs that several tests look at, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.outcomes import Jobs


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The training runs that are compared with plain Keras."""
    jobs = Jobs(tmp_path_factory.mktemp("jobs"))
    yield jobs
    jobs.close()
