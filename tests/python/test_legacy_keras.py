"""Legacy Keras (`tf_keras`, TF_USE_LEGACY_KERAS=1) on several ranks computes what it computes alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from support.catalogue import LEGACY, legacy_cases
from support.outcomes import Jobs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed: pip install --no-deps tf_keras"
)

ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1"}

every_case = pytest.mark.parametrize(
    ("size", "name"), [pytest.param(size, name, id=f"{name}-on-{size}") for name, sizes in LEGACY.items() for size in sizes]
)


@pytest.fixture(scope="module")
def legacy_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path_factory.mktemp("legacy"), legacy_cases, ENVIRONMENT)
    yield jobs
    jobs.close()


@every_case
def test_all_ranks_have_the_same_bits(legacy_jobs, size, name):
    legacy_jobs.same_bits(size, name)


@every_case
def test_losses_and_metrics(legacy_jobs, size, name):
    legacy_jobs.same_losses_and_metrics(size, name)


@every_case
def test_weights(legacy_jobs, size, name):
    legacy_jobs.same_weights(size, name)
