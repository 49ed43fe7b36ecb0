"""TNT_FUSION_THRESHOLD=autotune: trying changes no results, ranks agree, and the choice is kept for the next run."""

from __future__ import annotations

import json
import re

import pytest

from support.launch import RANKS, run_ranks

pytestmark = pytest.mark.long

SCRIPT = RANKS / "keras/reduction/autotune.py"
TRIED = ("two fits", "several steps", "accumulating", "eager", "damaged")
CASES = (*TRIED, "taken", "given", "hooked", "too few", "random", "small")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """What came of the same trainings with and without, and what the first job said."""
    found = {}
    for name, options in (("with", ["--autotune"]), ("without", [])):
        folder = tmp_path_factory.mktemp(name)
        job = run_ranks(
            2,
            SCRIPT,
            folder,
            timeout=240,
            env={"XDG_CACHE_HOME": str(folder)},
            launcher_options=["--log-level", "info", *options],
        ).good()
        found[name] = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
        found[f"{name} said"] = job.stderr
    return found


def test_ranks_agree(jobs):
    assert jobs["with"][0] == jobs["with"][1]


@pytest.mark.parametrize("name", CASES)
def test_no_bit_of_weights_optimizer_and_logs_changes(jobs, name):
    assert jobs["with"][0][name]["state"] == jobs["without"][0][name]["state"]


def test_all_steps_count_and_one_plan_is_left(jobs):
    for name in TRIED:
        case = jobs["with"][0][name]
        assert not case["tuning"]
        assert case["reducers"] == 1, name
        assert case["steps"] == jobs["without"][0][name]["steps"]


def test_what_was_found_is_logged_kept_and_taken(jobs):
    logged = re.findall(r"autotune: fusion threshold ([\d.]+ [KM]iB|inf) \((.*)\); stored in (.*)", jobs["with said"])
    assert len(logged) == len(TRIED)
    (entry,) = jobs["with"][0]["kept"]["entries"]
    chosen, times, _ = logged[0]
    assert times.count(" ms") == len(entry["step_ms"]) > 1
    assert chosen in entry["step_ms"]
    assert (entry["ranks"], entry["transport"]) == (2, "shm")
    taken = jobs["with"][0]["taken"]
    assert taken["threshold"] == str(entry["fusion_threshold"])
    assert re.search(r"autotune: fusion threshold .*, taken from .*autotune-.*json", jobs["with said"])
    assert jobs["without"][0]["kept"] is None


def test_a_given_threshold_wins(jobs):
    assert jobs["with"][0]["given"]["plan"] == jobs["without"][0]["given"]["plan"]
    assert jobs["with said"].count("autotune: nothing is tried: the fusion threshold is given") == 1


def test_one_ranks_bucket_hook_keeps_the_plan(jobs):
    assert jobs["with said"].count("the fusion threshold stays as it is: a bucket_hook sees which gradients lie together") == 1
    assert jobs["with"][0]["hooked"]["threshold"] == "None"


def test_a_fit_that_is_too_short_says_so_and_the_next_goes_on(jobs):
    assert jobs["with"][0]["too few"]["tuning"]
    assert jobs["with"][0]["too few"]["threshold"] == "None"
    # also in the first fit of "two fits"
    assert len(re.findall(r"WARNING: autotune: fit ended after \d+ of \d+ trials", jobs["with said"])) in (1, 2)


def test_nothing_is_tried_where_another_trace_would_draw_other_numbers_or_plans_do_not_differ(jobs):
    assert "nothing was tried: the step draws random numbers by RandomStandardNormal" in jobs["with said"]
    assert "nothing was tried: every fusion threshold gives the same plan" in jobs["with said"]
    assert jobs["with"][0]["random"]["reducers"] == jobs["with"][0]["small"]["reducers"] == 1


def test_a_damaged_file_is_named_once_and_written_anew(jobs):
    warned = re.findall(r"WARNING: (\S+) cannot be understood and will be written anew: (.*)", jobs["with said"])
    assert [why for _, why in warned] == ["entries[0].model is missing or no model"]
    assert len(jobs["with"][0]["kept anew"]["entries"]) == 1


def test_another_threshold_must_be_clearly_better(jobs):
    assert jobs["with"][0]["best"] == [3, 0, 0]


def test_one_rank_only_is_refused_on_all(tmp_path):
    source = """
        import os
        if os.environ["TNT_RANK"] == "1":
            os.environ["TNT_FUSION_THRESHOLD"] = "autotune"
        import keras, numpy as np
        import tarantella as tnt
        model = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
        try:
            model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0)
        except tnt.MismatchError as error:
            print(error)
    """
    job = run_ranks(2, source, launcher_options=["--output-on-all-devices"]).good()
    sentence = "TNT_FUSION_THRESHOLD is autotune on rank 1 but not on rank 0: it must be the same"
    assert sorted(job.stdout.splitlines()) == [f"[rank {rank}] {sentence}" for rank in range(2)]


def test_nonsense_is_refused_by_name_and_value():
    job = run_ranks(2, "import tarantella as tnt; tnt.get_rank()", env={"TNT_FUSION_THRESHOLD": "maybe"})
    assert job.code != 0
    assert "TNT_FUSION_THRESHOLD=maybe: expected kilobytes" in job.stderr
