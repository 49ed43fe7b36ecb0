"""`jit_compile=True` on several ranks: the numbers of one device, from segments that XLA compiles, reduced in between."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS, run_alone, run_ranks
from support.outcomes import Outcomes

pytestmark = pytest.mark.long

SIZE = 2
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # LLVM makes most of the time
MODELS = ["sequential", "functional", "with_local_state", "subclassed", "own_step", "parts", "recurrent", "branching"]
MODELS.append("not_for_xla")


# --------------------------------------------------------------------------------------- the numbers of one device


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What came of each model: on two ranks, and of plain Keras."""
    ours, alone = (tmp_path_factory.mktemp(name) for name in ("ranks", "alone"))
    in_segments = ["--fusion-threshold", "0.2"]
    result = run_ranks(SIZE, RANKS / "keras/xla/xla.py", ours, timeout=200, env=QUICK, launcher_options=in_segments).good()
    run_alone(RANKS / "keras/xla/xla.py", alone, "--serial", timeout=200, env=QUICK).good()
    return result, Outcomes(ours, SIZE), Outcomes(alone, 1)


@pytest.mark.parametrize("name", MODELS)
def test_numbers(trained, name):
    _, ranks, alone = trained
    ours, truth = ranks.arrays(name), alone.arrays(name)
    assert ours.keys() == truth.keys()
    for key in truth:
        np.testing.assert_allclose(ours[key], truth[key], rtol=2e-6, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_all_ranks_have_the_same_bits(trained, name):
    assert len(set(trained[1].digests(name))) == 1


def test_what_runs_without_xla_is_named_once(trained):
    said = [line for line in trained[0].stderr.splitlines() if "jit_compile=True" in line]
    for line, name in zip(said, ("lstm (LSTM)", "branch (Branch)", "calculating (Calculating)"), strict=True):
        assert f"{name} runs without XLA on several ranks, as " in line
    assert "loop" in said[0]
    assert "branch in it" in said[1]
    assert "PyFunc" in said[2]


# ----------------------------------------------------------------------------------------- what a step is made of


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/xla/xla_steps.py", timeout=200, env=QUICK, optimized=True)


SEGMENTS = {
    "0": ["hidden_0", "hidden_1", "hidden_2", "hidden_3", "last"],
    "300": ["hidden_0", "hidden_1_to_hidden_2", "hidden_3_to_last"],  # a kernel and its bias may be in two buckets
    "600": ["hidden_0_to_hidden_1", "hidden_2_to_last"],
    "inf": ["whole"],
}


@pytest.mark.parametrize("threshold", SEGMENTS)
def test_buckets_cut_the_model_into_segments(found, threshold):
    for on_rank in found["segments"]:
        assert on_rank[threshold]["forward"] == SEGMENTS[threshold]
        assert on_rank[threshold]["backward"] == len(SEGMENTS[threshold])


@pytest.mark.parametrize("threshold", ["0", "300", "600"])
def test_buckets_start_between_segments(found, threshold):
    """The first waits for the last segment's backward only, the last for all."""
    for on_rank in found["segments"]:
        behind = on_rank[threshold]["behind"]
        assert behind == sorted(behind)
        assert behind[0] == 1
        assert behind[-1] == on_rank[threshold]["backward"]


def test_a_model_in_the_model_is_cut_as_well(found):
    assert found["nested_model"][0]["forward"] == ["hidden_0", "hidden_1", "hidden_2_to_last", "outer"]


def test_several_steps_in_one_call(found):
    assert found["several_steps_in_one_call"][0]["forward"] == SEGMENTS["300"]


def test_evaluation_is_compiled_whole(found):
    assert found["evaluation"] == [["whole"]] * SIZE


def test_nothing_is_left_in_the_model(found):
    for (model, *others), jit_compile in found["nothing_is_left_in_the_model"]:
        assert set(model) <= {"_eval_epoch_iterator", "history", "stop_evaluating"}
        assert not any(others)
        assert jit_compile is True


def test_callbacks_have_the_plain_model(found):
    assert found["callbacks_have_the_plain_model"] == [[True, False] * 2] * SIZE


def test_auto_is_off_and_says_so(found):
    for jit_compile, messages in found["auto_is_off_and_says_so"]:
        assert jit_compile is False
        assert len(messages) == 1
        assert 'jit_compile="auto" leaves XLA off' in messages[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a_step_without_layers_says_so", "XLA compiles nothing of the training step"),
        ("own_communication_in_a_layer", "talks (Talks) runs without XLA on several ranks, as XLA has no TntAllReduce"),
    ],
)
def test_what_is_not_compiled_is_said_once(found, name, text):
    for messages in found[name]:
        assert len(messages) == 1
        assert text in messages[0]


# ---------------------------------------------------------------------------------------------------- the timeline


def test_reduction_begins_while_backward_goes_on(tmp_path):
    """The first bucket is packed before the last one is full."""
    steps = 8
    options = ["--fusion-threshold", "400", "--timeline", tmp_path / "timeline.json"]
    run_ranks(SIZE, RANKS / "keras/buckets.py", tmp_path, 2048, steps // 2, "jit", timeout=120, launcher_options=options).good()
    timeline = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in timeline if e["name"] == "thread_name"}
    for rank in range(SIZE):
        times = defaultdict(list)
        for event in sorted((e for e in timeline if e["ph"] != "M"), key=lambda e: e["ts"]):
            if tracks[event["pid"], event["tid"]] == "gradients" and event["pid"] == rank:
                times[event["name"]].append(event["ts"])
        buckets = json.loads((tmp_path / f"{rank}.json").read_text())["buckets"]
        assert len(buckets) > 2
        full = zip(*(times[f"ready {bucket}"] for bucket in range(len(buckets))), strict=True)
        begins = [[t for t in times["pack 0"] if t >= first] for first in times["ready 0"]]
        early = [packed[0] < max(ready) for packed, ready in zip(begins, full, strict=True)]
        assert len(early) == steps
        assert sum(early) > steps // 2, early
