"""Legacy Keras (`tf_keras`, TF_USE_LEGACY_KERAS=1) on several ranks computes what it computes alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from support.catalogue import LEGACY, legacy_cases
from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS
from support.outcomes import Jobs

pytestmark = [pytest.mark.long, needs_tf_keras]

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


# ----------------------------------------------------------------------------------- what else a model of it can do

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/adapter/legacy_keras.py", env=ENVIRONMENT)


def test_the_front_end_is_the_one_of_tensorflow(found):
    assert found["front_end"] == [["Model", True, "tf_keras.src.engine.training"]] * SIZE


def test_a_model_of_the_other_keras_is_refused(found):
    for kind, text in found["a_model_of_keras_3"]:
        assert kind == "TypeError"
        assert text.endswith("not Sequential: this one is of Keras 3: unset TF_USE_LEGACY_KERAS before TensorFlow is imported")


def test_a_sharded_optimizer_is_refused(found):
    text = "shard_optimizer (TNT_SHARD_OPTIMIZER) needs Keras 3: unset TF_USE_LEGACY_KERAS, or train without it"
    assert found["a_sharded_optimizer"] == [["UnsupportedError", text]] * SIZE


def test_a_model_must_be_compiled(found):
    text = "the model must be compiled before fit: call tnt.Model.compile"
    assert found["not_compiled"] == [["RuntimeError", text]] * SIZE


def test_arguments_of_this_keras_only(found):
    assert found["loading_in_other_threads"] == [[1, 40]] * SIZE


def test_files(found):
    for *formats, expected, left_over in found["saved_and_loaded"]:
        assert [names for names, *_ in formats] == [["model.keras"], ["model.h5"], ["folder"]]
        assert all(is_plain and same_predictions for _, is_plain, same_predictions, _ in formats)
        for *_, trained_on in formats[:2]:  # from a SavedModel Keras itself takes other optimizer state
            np.testing.assert_allclose(trained_on, expected, rtol=1e-6)
        assert left_over == []


def test_files_of_weights(found):
    checkpoint = ["of_tensorflow.data-00000-of-00001", "of_tensorflow.index"]
    assert found["weights_there_and_back"] == [[[["some.weights.h5"], True], [checkpoint, True], []]] * SIZE


def test_text(found):
    assert found["written_as_text"] == [[False, "Sequential", True], [False, "Sequential", False]]


HOW = ["was called on the Keras model inside", "was cloned", "was copied", "was copied", "was loaded from a file"]


@pytest.mark.parametrize("index", range(len(HOW)))
def test_a_plain_copy_does_not_train(found, index):
    for errors in found["plain_copies"]:
        kind, text = errors[index]
        assert kind == "TarantellaError"
        assert HOW[index] in text


def test_another_plain_model_trains_with_a_warning(found):
    for (message,) in found["a_plain_model"]:
        assert message.startswith("fit of the plain Keras model 'sequential")


def test_xla_stays_off_and_the_log_says_so(found):
    for same, still_wished, messages in found["jit_compile"]:
        assert same
        assert still_wished
        assert messages == ["jit_compile=True: XLA compiles nothing of the training step, as it calls no layer that can be"]


def test_loops(found):
    """By a wrapped optimizer and by a distributed tape: the numbers of one device, clipping included."""
    for by_kind in found["loops"]:
        for by_optimizer, by_tape, alone in by_kind:
            np.testing.assert_allclose(by_optimizer, alone, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(by_tape, alone, rtol=1e-5, atol=1e-7)


def test_a_wrapped_optimizer(found):
    for same_object, is_distributed, copy_is, values, (kind, text) in found["wrapped_optimizer"]:
        assert (same_object, is_distributed, copy_is) == (True, True, False)
        assert values == [0.0, 0.0]  # a step of a half against the sum of both ranks' gradients
        assert kind == "UnsupportedError"
        assert "tnt.optimizers.Optimizer" in text


def test_tensors(found):
    assert found["tensors"] == [[[2.0, 1.0], [1.0]]] * SIZE
