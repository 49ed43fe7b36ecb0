"""Pipelines against the serial training: the same bits with as many shards, and plain Keras' numbers to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

pytestmark = pytest.mark.long

COMPARED = ("history", "evaluate", "weights", "optimizer", "file")


@pytest.fixture(scope="module")
def found() -> dict[int, Findings]:
    """What each rank of the jobs of 1, 2 and 4 ranks has found. Some run with one inter-op thread."""
    jobs = {}
    for ranks, names in ((1, ()), (2, ()), (4, ("trained_mlp", "trained_tagger"))):
        env = {"TF_NUM_INTEROP_THREADS": "1"} if ranks > 1 else {}
        jobs[ranks] = Findings(ranks, RANKS / "keras/pipeline/training.py", timeout=240, env=env, only=names)
    return jobs


@pytest.mark.parametrize(
    ("ranks", "model", "schedules"),
    [
        (2, "mlp", ["gpipe", "1f1b"]),
        (2, "cnn", ["1f1b"]),
        (2, "half", ["1f1b"]),
        (2, "tagger", ["1f1b"]),
        (2, "transformer", ["interleaved"]),
        (4, "mlp", ["1f1b"]),
        (4, "tagger", ["1f1b"]),
    ],
)
def test_the_bits_of_the_serial_training(found, ranks, model, schedules):
    serial = found[1][f"trained_{model}"][0]
    for rank in range(ranks):
        pipelines = found[ranks][f"trained_{model}"][rank]
        assert list(pipelines) == schedules
        for schedule, pipeline in pipelines.items():
            assert {name: pipeline[name] for name in COMPARED} == {name: serial[name] for name in COMPARED}, (schedule, rank)


@pytest.mark.parametrize(("ranks", "model"), [(2, "cnn"), (4, "mlp")])
def test_each_rank_holds_its_part(found, ranks, model):
    serial = found[1][f"trained_{model}"][0]
    own = [found[ranks][f"trained_{model}"][rank]["1f1b"] for rank in range(ranks)]
    trained = (serial["state"] - 2) // 2  # Adam has its step count, its learning rate, and two states for each variable
    held = [trained - pipeline["foreign"] for pipeline in own]
    assert sum(held) == trained
    assert min(held) > 0
    assert [pipeline["state"] - 2 for pipeline in own] == [2 * n for n in held]


def test_an_unexpected_message_is_an_error_that_names_both(found):
    unexpected = found[2]["unexpected_messages"][1]
    texts = [f"the output of 'layer' (tensor 0, micro-batch {m}, stage 0 to 1) in step" for m in range(2)]
    step = int(unexpected["order"][1].split(" in step ")[1].split()[0])
    assert f"the pipeline expected {texts[0]} {step} from rank 0, and got {texts[1]} {step}" in unexpected["order"][1]
    assert f"expected {texts[1]} {step} from rank 0, and got {texts[0]} {step}" in unexpected["as well"][1]
    assert f"expected {texts[0]} {step + 1} from rank 0, and got {texts[0]} {step}" in unexpected["step"][1]


def test_predictions_are_those_of_the_file(found):
    for model in ("mlp", "cnn", "transformer"):
        assert all(p["difference"] < 1e-5 for p in found[2][f"trained_{model}"][0].values())


def test_the_numbers_of_plain_keras(found):
    plain = np.array(found[1]["weights_of_plain_keras"][0])
    for rank in range(2):
        assert np.allclose(found[2]["weights_of_plain_keras"][rank], plain, rtol=2e-3, atol=2e-5)


def test_single_batches(found):
    serial = found[1]["single_batches"][0]
    assert serial["alike"]
    assert serial["sizes"] == [7, 7]
    assert found[2]["single_batches"] == [serial, serial]


def test_goes_on_from_a_file(found):
    assert found[2]["goes_on_from_a_file"][0] == found[1]["goes_on_from_a_file"][0]


def test_split_layers(found):
    split = found[2]["by_split_layers"][0]
    assert split["kinds"] == ["Dense", "Identity", "Dense", "Dense"]
    assert [line.split()[:2] for line in split["lines"][:3]] == [["stage", "rank"], ["0", "0"], ["1", "1"]]
    assert "before ... split (2)" in split["lines"][1]
    assert split["lines"][-1].startswith("1f1b, 3 micro-batches: bubble 25.0 %.")
