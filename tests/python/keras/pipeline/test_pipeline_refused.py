"""What a pipeline refuses, on all ranks and with the ways out."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS


@pytest.fixture(scope="module")
def found() -> Findings:
    return Findings(2, RANKS / "keras/pipeline/refused.py", timeout=240)


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("subclassed", "UnsupportedError", "a subclassed model (Subclassed): its call does not say"),
        ("own metrics", "UnsupportedError", "by the compute_metrics of Logging: each rank has a part of the model only"),
        ("too few layers", "InvalidArgumentError", "it has 1 at most. Use pipeline_stages=1 or fewer"),
        ("shared", "UnsupportedError", "shared/moving_mean, which is not trained: only trained weights may be shared"),
        ("three parts", "UnsupportedError", "twice/kernel, whose gradient has more than two parts"),
        ("no variables", "InvalidArgumentError", "schedule is 'x': use 'gpipe', '1f1b' or 'interleaved'"),
        ("no data", "UnsupportedError", "no data crosses the cut before stage 1 of the pipeline"),
        ("unknown", "InvalidArgumentError", "pipeline_stages names 'nowhere', and the model has no such layer"),
        (
            "clip",
            "UnsupportedError",
            "SGD(global_clipnorm=...) and gradient_accumulation_steps=... cannot go together in a pipeline",
        ),
        ("callback", "UnsupportedError", "a callback calls predict of the model, of which this rank holds some stages only"),
        ("loads", "UnsupportedError", "a callback loads weights on all ranks, of which each holds some stages only"),
        ("hook", "UnsupportedError", "bucket_hook is for gradients that ranks reduce"),
        (
            "coupled",
            "UnsupportedError",
            "a pipeline cannot be trained by Coupled, as each rank updates its own variables alone",
        ),
        ("XLA", "UnsupportedError", "compile with jit_compile=False"),
        ("scaled loss", "UnsupportedError", "SGD(global_clipnorm=...) and a scaled loss cannot go together in a pipeline"),
        ("averages", "UnsupportedError", "SwapEMAWeights needs all weights on one rank"),
        ("histograms", "UnsupportedError", "TensorBoard needs all weights on one rank"),
        ("sums", "UnsupportedError", "counting/samples, of which stages of a pipeline"),
        ("ranks", "InvalidArgumentError", "3 stages cannot be divided evenly among 2 ranks"),
        ("different", "MismatchError", "the ranks have different models: rank 1 has inner (Dense)"),
        ("mask", "UnsupportedError", "the mask of the model's output depends on weights"),
        ("micro-batches", "InvalidArgumentError", "in a pipeline micro-batches are the shards of a batch"),
    ],
)
def test_what_is_refused(found, case, kind, text):
    on_ranks = [found["refused"][rank][case] for rank in range(2)]
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
    on_ranks = [found["noise_refused"][rank][case] for rank in range(2)]
    assert all(refusal[0] == "UnsupportedError" and text in refusal[1] for refusal in on_ranks), on_ranks


def test_noise_of_layers_and_of_constant_seeds_is_not_refused(found):
    for rank in range(2):
        outcome = found["noise_refused"][rank]
        assert outcome["constant"] == outcome["layers"] == []


def test_a_cut_divides_nothing_that_is_computed_as_one(found):
    for rank in range(2):
        outcome = found["divided"][rank]
        assert outcome["by name"][0] == ("UnsupportedError" if rank == 0 else "TarantellaError")  # rank 0 cuts
        assert "TensorFlow may compute straight and bent as one" in outcome["by name"][1]
        assert outcome["not reproducible"] == outcome["after both"] == []
        assert outcome["places"] == [1, 2]
        assert outcome["places of the mlp"] == []


def test_other_batches_on_other_ranks_are_refused(found):
    """Otherwise one rank's samples would be compared with another's labels."""
    for outcome in found["other_batches"]:
        for refusal in outcome.values():
            assert refusal[0] == "MismatchError"
            assert "the ranks took parts of different batches in this step" in refusal[1]
