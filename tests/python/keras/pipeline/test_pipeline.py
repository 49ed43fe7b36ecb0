"""Pipelines against the serial training: the same bits with as many shards, and plain Keras' numbers to rounding."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS, run_ranks

pytestmark = pytest.mark.long

COMPARED = ("history", "evaluate", "weights", "optimizer", "file")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the jobs leave their fingerprints."""
    return tmp_path_factory.mktemp("fingerprints")


@pytest.fixture(scope="module")
def found(folder) -> dict[int, Findings]:
    """What each rank of the jobs of 1, 2 and 4 ranks has found. Some run with one inter-op thread."""
    jobs = {}
    for ranks, names in ((1, ()), (2, ()), (4, ("trained_mlp", "trained_tagger", "trained_cnn"))):
        env = {"TNT_FINGERPRINT": str(folder / f"{ranks}.jsonl")}
        if ranks > 1:
            env["TF_NUM_INTEROP_THREADS"] = "1"
        jobs[ranks] = Findings(ranks, RANKS / "keras/pipeline/training.py", timeout=240, env=env, only=names, optimized=True)
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
        (4, "cnn", ["1f1b"]),
    ],
)
def test_the_bits_of_the_serial_training(found, ranks, model, schedules):
    serial = found[1][f"trained_{model}"][0]
    for rank in range(ranks):
        pipelines = found[ranks][f"trained_{model}"][rank]
        assert list(pipelines) == schedules
        for schedule, pipeline in pipelines.items():
            assert {name: pipeline[name] for name in COMPARED} == {name: serial[name] for name in COMPARED}, (schedule, rank)


def test_float64_is_kept(found):
    serial = found[1]["trained_in_float64"][0]
    for rank in range(2):
        for name, numbers in found[2]["trained_in_float64"][rank].items():
            np.testing.assert_allclose(numbers, serial[name], rtol=1e-12, err_msg=f"{name} on rank {rank}")


@pytest.mark.parametrize(("ranks", "model"), [(2, "cnn"), (4, "mlp")])
def test_each_rank_holds_its_part(found, ranks, model):
    serial = found[1][f"trained_{model}"][0]
    own = [found[ranks][f"trained_{model}"][rank]["1f1b"] for rank in range(ranks)]
    trained = (serial["state"] - 2) // 2  # Adam has its step count, its learning rate, and two states for each variable
    held = [trained - pipeline["foreign"] for pipeline in own]
    assert sum(held) == trained
    assert min(held) > 0
    assert [pipeline["state"] - 2 for pipeline in own] == [2 * n for n in held]


def test_replicas_share_the_state_of_the_optimizer(found):
    whole = found[1]["trained_cnn"][0]["state"] - 2
    parts = [found[4]["trained_cnn"][rank]["1f1b"]["state"] - 2 for rank in range(4)]
    assert sum(parts) == whole
    assert min(parts) > 0


def steps_and_epochs(path: Path, training: int) -> list[dict[str, Any]]:
    """The fingerprints of one of a job's trainings."""
    lines = map(json.loads, path.read_text().splitlines())
    chosen = [line for line in lines if line.get("training") == training and line["kind"] != "training"]
    return [{name: value for name, value in line.items() if name != "training"} for line in chosen]


@pytest.mark.parametrize(
    ("ranks", "training", "serial"),
    [(4, 0, 0), (4, 1, 1), (4, 2, 3), (2, 5, 4)],
    ids=["mlp", "cnn with a shared optimizer", "tagger", "half"],
)
def test_fingerprints_are_those_of_the_serial_training(found, folder, ranks, training, serial):
    """What `tarantella verify` compares: gradients and weights of each step, and all state after each epoch."""
    expected = steps_and_epochs(folder / "1.jsonl", serial)
    kinds = [line["kind"] for line in expected]
    assert kinds.count("epoch") == 2
    assert None not in next(line for line in expected if line["kind"] == "step")["gradients"]
    assert steps_and_epochs(folder / f"{ranks}.jsonl", training) == expected


def test_deferred_weights(found):
    """They have no memory when a model is built, and get the values that they would have had, on the rank that holds them."""
    outcomes = found[2]["deferred_weights"]
    for outcome in outcomes:
        assert outcome["found"] == [outcome["expected"]] * 3
        assert sum(outcome["sizes"][0]) == 15  # an initializer of the user's own is called at once
    for model in (1, 2):
        on_ranks = [outcome["sizes"][model] for outcome in outcomes]
        assert [sorted(sizes) for sizes in zip(*on_ranks, strict=True)] == [[0, n] for n in (20, 5, 5, 5, 5, 5, 15, 3, 3, 1)]


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


def test_methods_of_the_models_class_get_the_arguments(found):
    plain = found[1]["methods_of_the_class"][0]
    for rank in range(2):
        np.testing.assert_allclose(found[2]["methods_of_the_class"][rank], plain, rtol=1e-5, err_msg=f"rank {rank}")


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


CORES = """
    import os
    import keras
    import tarantella as tnt

    def cores():
        return sorted({core for thread in os.listdir("/proc/self/task") for core in os.sched_getaffinity(int(thread))})

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    before = cores()
    tnt.Model(model, tnt.ParallelStrategy.PIPELINING)
    print(before, cores(), flush=True)
"""


@pytest.mark.parametrize("options", [[], ["--pin-to-cores"]], ids=["by default", "asked for"])
def test_a_rank_may_use_the_cores_of_ranks_that_wait(options):
    """Unless it was asked for, a pipeline is not bound to shares of the cores."""
    here = sorted(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("one core")
    said = run_ranks(2, CORES, launcher_options=options, bound=True).good().stdout
    own = here[: len(here) // 2]
    assert said == f"{own} {own if options else here}\n"
