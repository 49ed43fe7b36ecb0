"""Training that is not synchronised ends in an error on all ranks, or says what it is: never in silence."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 3


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/step/unsynchronised.py", env={"TNT_TIMEOUT": "60"})


def same_error(errors, kind, *words):
    """All ranks got an error of this class with the same text, in which all these words are."""
    assert all(error == errors[0] for error in errors), errors
    assert errors[0], "no error"
    assert errors[0][0] == kind, errors[0]
    for word in words:
        assert word in errors[0][1], errors[0]


def test_gradients_that_were_not_reduced(found):
    for rank, (kind, text, begun, ended) in enumerate(found["gradients_not_reduced"]):
        assert kind == "TarantellaError"
        assert f"rank {rank}: the first step did not reduce the gradient of " in text
        assert "first/kernel and 3 others" in text
        assert (begun, ended) == (1, 0), "after the first step, before anybody else hears of it"


def test_an_optimizer_that_was_not_used(found):
    for kind, text in found["optimizer_not_used"]:
        assert kind == "TarantellaError"
        assert "did not reduce" in text


def test_weights_that_one_rank_changed(found):
    same_error(found["weights_changed_on_one_rank"], "MismatchError", "rank 1", "second/kernel", "after the first step")


@pytest.mark.parametrize("index", [0, 1], ids=["fit", "train_on_batch"])
def test_the_model_inside_refuses(found, index):
    errors = [on_rank[index] for on_rank in found["the_model_inside"]]
    same_error(errors, "TarantellaError", ["fit", "train_on_batch"][index], "inside a tnt.Model")


@pytest.mark.parametrize("index", range(4), ids=["sequential", "its-inner", "functional", "its-inner-too"])
def test_clones_refuse(found, index):
    same_error([on_rank[index] for on_rank in found["clones"]], "TarantellaError", "cloned", "tnt.Model(model)")


@pytest.mark.parametrize("index", range(2), ids=["models", "saving"])
def test_loaded_models_refuse(found, index):
    same_error([on_rank[index] for on_rank in found["loaded_from_a_file"]], "TarantellaError", "loaded from a file")


@pytest.mark.parametrize("index", range(2), ids=["deepcopy", "pickle"])
def test_copies_of_the_model_inside_refuse(found, index):
    same_error([on_rank[index] for on_rank in found["copies_of_the_model_inside"]], "TarantellaError", "plain Keras model")


@pytest.mark.parametrize("index", range(4), ids=["copy", "deepcopy", "pickle", "wrapped-twice"])
def test_copies_are_distributed(found, index):
    errors, weights = zip(*(on_rank[index] for on_rank in found["copied"]), strict=True)
    assert not any(errors), errors
    assert all(on_rank == weights[0] for on_rank in weights)


@pytest.mark.parametrize("name", ["a_clone_that_is_wrapped", "the_job_goes_on"])
def test_distributed(found, name):
    errors, weights = zip(*found[name], strict=True)
    assert not any(errors), errors
    assert all(on_rank == weights[0] for on_rank in weights)


def test_a_plain_model_trains_with_one_warning(found):
    for errors, messages in found["a_plain_model"]:
        assert not errors
        assert len(messages) == 1, messages
        assert "nothing is synchronised" in messages[0]


def test_a_plain_model_on_purpose_trains_without(found):
    assert found["a_plain_model_on_purpose"] == [[True, [], []]] * SIZE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other_size_of_a_layer", ["units of Dense 'first'", "5 on rank 1", "3 on rank 0"]),
        ("other_dtype_of_a_layer", ["rank 1", "first/kernel", "float64", "float32"]),
        ("other_number_of_variables", ["on rank 1", "on rank 0", "Dense 'between_0'"]),
        ("fewer_variables_at_the_end", ["trainable of Dense 'second'", "False on rank 1", "True on rank 0"]),
        ("other_optimizer", ["rank 1", "Adam", "SGD"]),
        ("other_metrics", ["rank 1"]),
        ("other_batches", ["different batches", "none that most ranks have, in x", "tnt_distribute_dataset=False"]),
        ("other_targets_on_one_rank", ["rank 1 has another than the others, in y. "]),
        ("another_column_on_one_rank", ["rank 2 has another than the others, in x[inputs]. "]),
        ("another_number_of_samples", ["rank 1 has", "in the number of samples: 5 on rank 0, 4 on rank 1"]),
        ("another_order_that_was_allowed", ["deterministic=False"]),
        ("before_the_maps", ["rank 0 has another than the others, in x before the maps. "]),
        ("other_shuffles", ["the ranks took parts of different batches", "by another seed on each rank"]),
        ("other_ragged_rows", ["rank 1 has another than the others, in x. "]),
        ("other_batch_on_one_rank", ["rank 1 has another than the others, in x. "]),
        ("other_batch_size", ["training data: batches is", "on rank 2", "on rank 0"]),
    ],
)
def test_what_differs_is_named(found, name, words):
    same_error(found[name], "MismatchError", *words)
