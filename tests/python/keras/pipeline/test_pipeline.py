"""Pipelines against the serial training: the same bits with as many shards, and plain Keras' numbers to rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.launch import RANKS, run_ranks

COMPARED = ("history", "evaluate", "weights", "optimizer", "file")
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Found]:
    """What each rank of the jobs of 1, 2 and 4 ranks has found. Some run with one inter-op thread."""
    jobs = {}
    for ranks, names in ((1, ()), (2, ()), (4, ("trained_mlp", "trained_cnn"))):
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        env = {"TF_NUM_INTEROP_THREADS": "1"} if ranks > 1 else {}
        run_ranks(ranks, RANKS / "keras/pipeline/training.py", folder, *names, timeout=240, env=env).good()
        jobs[ranks] = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    return jobs


def value(found: dict[int, Found], ranks: int, name: str, rank: int = 0) -> Any:
    outcome = found[ranks][rank][name]
    assert "value" in outcome, outcome["error"]
    return outcome["value"]


@pytest.mark.parametrize(
    ("ranks", "model", "schedules"),
    [
        (2, "mlp", ["gpipe", "1f1b"]),
        (2, "cnn", ["1f1b"]),
        (2, "transformer", ["interleaved"]),
        (4, "mlp", ["1f1b", "replicas"]),
        (4, "cnn", ["1f1b"]),
    ],
)
def test_the_bits_of_the_serial_training(found, ranks, model, schedules):
    serial = value(found, 1, f"trained_{model}")
    for rank in range(ranks):
        pipelines = value(found, ranks, f"trained_{model}", rank)
        assert list(pipelines) == schedules
        for schedule, pipeline in pipelines.items():
            assert {name: pipeline[name] for name in COMPARED} == {name: serial[name] for name in COMPARED}, (schedule, rank)


@pytest.mark.parametrize(("ranks", "model"), [(2, "cnn"), (4, "mlp")])
def test_each_rank_holds_its_part(found, ranks, model):
    serial = value(found, 1, f"trained_{model}")
    own = [value(found, ranks, f"trained_{model}", rank)["1f1b"] for rank in range(ranks)]
    trained = (serial["state"] - 2) // 2  # Adam has its step count, its learning rate, and two states for each variable
    held = [trained - pipeline["foreign"] for pipeline in own]
    assert sum(held) == trained
    assert min(held) > 0
    assert [pipeline["state"] - 2 for pipeline in own] == [2 * n for n in held]


def test_an_unexpected_message_is_an_error_that_names_both(found):
    unexpected = value(found, 2, "unexpected_messages", 1)
    texts = [f"the output of 'layer' (tensor 0, micro-batch {m}, stage 0 to 1) in step" for m in range(2)]
    step = int(unexpected["order"][1].split(" in step ")[1].split()[0])
    assert f"the pipeline expected {texts[0]} {step} from rank 0, and got {texts[1]} {step}" in unexpected["order"][1]
    assert f"expected {texts[1]} {step} from rank 0, and got {texts[0]} {step}" in unexpected["as well"][1]
    assert f"expected {texts[0]} {step + 1} from rank 0, and got {texts[0]} {step}" in unexpected["step"][1]


def test_predictions_are_those_of_the_file(found):
    for model in ("mlp", "cnn", "transformer"):
        assert all(p["difference"] < 1e-5 for p in value(found, 2, f"trained_{model}").values())


def test_the_numbers_of_plain_keras(found):
    plain = np.array(value(found, 1, "weights_of_plain_keras"))
    for rank in range(2):
        assert np.allclose(value(found, 2, "weights_of_plain_keras", rank), plain, rtol=2e-3, atol=2e-5)


def test_goes_on_from_a_file(found):
    assert value(found, 2, "goes_on_from_a_file") == value(found, 1, "goes_on_from_a_file")


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("subclassed", "UnsupportedError", "a subclassed model (Subclassed): its call does not say"),
        ("too few layers", "InvalidArgumentError", "it has 1 at most. Use pipeline_stages=1 or fewer"),
        ("shared", "UnsupportedError", "shared/kernel: a variable belongs to one rank"),
        ("no variables", "InvalidArgumentError", "schedule is 'x': use 'gpipe', '1f1b' or 'interleaved'"),
        ("no data", "UnsupportedError", "no data crosses the cut before stage 1 of the pipeline"),
        ("unknown", "InvalidArgumentError", "pipeline_stages names 'nowhere', and the model has no such layer"),
        ("regularizer", "UnsupportedError", "losses that layers add"),
        ("clip", "UnsupportedError", "SGD(global_clipnorm=..., gradient_accumulation_steps=...) of a pipeline needs"),
        ("callback", "UnsupportedError", "ModelCheckpoint needs all weights on one rank"),
        ("hook", "UnsupportedError", "bucket_hook is for gradients that ranks reduce"),
        ("sharded", "UnsupportedError", "shard_optimizer and a pipeline cannot go together"),
        ("XLA", "UnsupportedError", "compile with jit_compile=False"),
        ("several steps", "UnsupportedError", "compile the model with steps_per_execution=1"),
        ("added loss", "UnsupportedError", "losses that layers add, as activity_regularization"),
        ("scaled loss", "UnsupportedError", "use bfloat16 in the place of float16"),
        ("checkpoint", "UnsupportedError", "tnt.callbacks.Checkpoint does not know pipelines yet"),
        ("backup", "UnsupportedError", "BackupAndRestore needs all weights on one rank"),
        ("best weights", "UnsupportedError", "leave out restore_best_weights"),
        ("ranks", "InvalidArgumentError", "3 stages cannot be divided evenly among 2 ranks"),
        ("different", "MismatchError", "the ranks have different models: rank 1 has inner (Dense)"),
        ("micro-batches", "InvalidArgumentError", "in a pipeline micro-batches are the shards of a batch"),
        ("single batch", "UnsupportedError", "train_on_batch of a pipeline is not available in this version"),
    ],
)
def test_what_is_refused(found, case, kind, text):
    on_ranks = [value(found, 2, "refused", rank)[case] for rank in range(2)]
    assert text in on_ranks[0][1] or text in on_ranks[1][1], on_ranks
    assert kind in (on_ranks[0][0], on_ranks[1][0])
    assert all(on_ranks)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("common", "the model (keras.random without a seed) draws random numbers that depend on the calls before"),
        ("hidden", "the model (RandomStandardNormal) draws"),
        ("of TensorFlow", "the model (RngReadAndSkip) draws"),
        ("outside", "which is no weight of a layer"),
        ("loss", "a loss draws random numbers"),
        ("only outside of training", "the model (keras.random without a seed) draws"),
    ],
)
def test_noise_that_would_depend_on_the_stages_is_refused(found, case, text):
    on_ranks = [value(found, 2, "noise_refused", rank)[case] for rank in range(2)]
    assert all(refusal[0] == "UnsupportedError" and text in refusal[1] for refusal in on_ranks), on_ranks


def test_noise_of_layers_and_of_constant_seeds_is_not_refused(found):
    for rank in range(2):
        outcome = value(found, 2, "noise_refused", rank)
        assert outcome["constant"] == outcome["layers"] == []


def test_a_cut_divides_nothing_that_is_computed_as_one(found):
    for rank in range(2):
        outcome = value(found, 2, "divided", rank)
        assert outcome["by name"][0] == ("UnsupportedError" if rank == 0 else "TarantellaError")  # rank 0 cuts
        assert "TensorFlow may compute straight and bent as one" in outcome["by name"][1]
        assert outcome["not reproducible"] == outcome["after both"] == []
        assert outcome["places"] == [1, 2]
        assert outcome["places of the mlp"] == []


def test_split_layers(found):
    split = value(found, 2, "by_split_layers")
    assert split["kinds"] == ["Dense", "Identity", "Dense", "Dense"]
    assert [line.split()[:2] for line in split["lines"][:3]] == [["stage", "rank"], ["0", "0"], ["1", "1"]]
    assert "before ... split (2)" in split["lines"][1]
    assert split["lines"][-1].startswith("1f1b, 3 micro-batches: bubble 25.0 %.")
