"""`tnt.plan` and `fusion_threshold`: what is shown is what is done, and fusion changes no bits."""

from __future__ import annotations

import json
import re

import pytest

from support.launch import RANKS, run_ranks

BUCKET = re.compile(r"bucket (\d+): [\d.]+ (B|KiB|MiB), (\d+) tensors?, \S+( …)?")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    job = run_ranks(2, RANKS / "keras/reduction/plan.py", folder, launcher_options=["--log-level", "info"])
    job.good()
    return job, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_the_plan_is_the_same_on_all_ranks_and_fit_keeps_it(found):
    _, (first, second) = found
    assert first == second
    for name in ("own", "none", "some", "one"):
        assert first[name]["before"] == first[name]["after"]


def test_every_tensor_is_in_one_bucket(found):
    for name in ("own", "none", "some", "one"):
        lines = [BUCKET.fullmatch(line) for line in found[1][0][name]["before"]]
        assert [int(line[1]) for line in lines] == list(range(len(lines)))
        assert sum(int(line[3]) for line in lines) == 10


def test_the_threshold_decides_how_many_there_are(found):
    counts = {name: len(found[1][0][name]["before"]) for name in ("none", "some", "one")}
    assert counts["none"] == 10
    assert counts["one"] == 1
    assert 1 < counts["some"] < 10


def test_fusion_changes_no_bit(found):
    assert len({found[1][0][name]["weights"] for name in ("own", "none", "some", "one")}) == 1


def test_the_plan_is_printed_once_and_what_reducing_has_cost_is_logged(found):
    job, (first, _) = found
    for line in first["some"]["before"]:
        assert line in job.stdout.splitlines()
    logged = re.findall(r"2 steps reduced [\d.]+ MiB each in .* ms were exposed \(\d+% hidden\)", job.stderr)
    assert len(logged) == 4


def test_nonsense_is_refused_by_name(found):
    *thresholds, plain = found[1][0]["errors"]
    named = [re.match(r"fusion_threshold is (\S+): use a number of bytes", error)[1] for error in thresholds]
    assert named == ["-1", "'4M'", "nan"]
    assert plain == "tnt.plan needs what tnt.Model returned, not Sequential"
