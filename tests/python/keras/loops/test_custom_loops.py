"""The tape, the optimizer, tensors and variables of training loops that a user writes, on ranks with very different shares."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

pytestmark = pytest.mark.long

SIZE = 3
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def on_three():
    """With one thread for TensorFlow's operations: none may wait in another order than on the other ranks."""
    return Findings(
        SIZE, RANKS / "keras/loops/custom_loops.py", env={"TNT_TIMEOUT": "60", "TF_NUM_INTEROP_THREADS": "1"}, timeout=200
    )


@pytest.fixture(scope="module")
def on_one():
    return Findings(1, RANKS / "keras/loops/custom_loops.py", timeout=200)


@pytest.fixture(params=["on_three", "on_one"])
def found(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("name", ["equivalence", "optimizers", "embedding"])
def test_one_device_would_do_the_same(found, name):
    for on_rank in found[name]:
        assert on_rank
        for how, (error, spread) in on_rank.items():
            assert error < TOLERANCE, how
            assert spread == 0.0, how


def test_weights(on_three):
    mean, plain_sum, own, by_samples = [2.0] * 2, [6.0] * 2, [0.5 * 2 + 3.0] * 2, [(1 * 2 + 2 * 3) / 3] * 2
    for on_rank in on_three["weights"]:
        for ours, truth in zip(on_rank, [mean, plain_sum, own, by_samples, [0.0] * 2], strict=True):
            assert ours == pytest.approx(truth)


def test_weights_on_one_rank(on_one):
    assert on_one["weights"] == [[[1.0] * 2, [1.0] * 2, [0.0] * 2, [0.0] * 2, [0.0] * 2]]


def test_gradients_have_the_structure_of_their_sources(on_three):
    """An optimizer of Keras 3 computes with each occurrence of a row."""
    indices = [0, 0, 7, 1, 1, 7, 2, 2, 7]
    rows, others = [indices, [1.0] * len(indices), [4096, 8]], [[3.0, 3.0], "float64", [3.0], True]
    assert on_three["structures"] == [[rows, others]] * SIZE


def test_a_loop_in_a_graph(found):
    for error, spread in found["in_a_loop_of_a_graph"]:
        assert error < 10 * TOLERANCE  # hundreds of additions
        assert spread == 0.0


def test_two_gradients_in_a_step(on_three):
    assert on_three["twice_in_a_step"] == [[6.0, 18.0]] * SIZE


def test_no_sync(found):
    for on_rank in found["no_sync"]:
        for error, spread, steps in on_rank:
            assert error < TOLERANCE
            assert spread == 0.0
            assert steps == (1 if len(found["no_sync"]) > 1 else 0)


def test_accumulated_gradients_are_reduced_once(on_three):
    assert on_three["accumulation_reduces_once"] == [[0, 0, 0, 1, 0, 0, 0, 1, 0]] * SIZE


def test_the_optimizer_stays_what_it_is(found):
    for on_rank in found["is_the_optimizer"]:
        assert on_rank == [True, True, 0.5, True, True, [True, False, False, True]]


def test_reducers_do_not_keep_variables_alive(on_three):
    assert on_three["reducers_end_with_their_variables"] == [[True, False]] * SIZE


def test_broadcast_variables(on_three):
    values = [[2.0, 2.0], [1.0, 7.0], [1.0], [1.0] * 4]
    assert on_three["broadcast_variables"] == [[values, values]] * SIZE


def test_all_reduce_of_tensors(on_three):
    way = [
        [[6.0, 12.0], "float32"],
        [[3.0, 6.0], "float32"],
        [[2.0, 4.0], "bfloat16"],
        [[6.0, 48.0], "int32"],
        [[[[6.0]], [[12.0]]], "float32"],
        [[], "float32"],
    ]
    assert on_three["all_reduce_of_tensors"] == [[way] * 3] * SIZE


def test_all_reduce_of_variables(on_three):
    assert on_three["all_reduce_of_variables"] == [[[True, [6.0]], [True, [6.0]]]] * SIZE


def test_gradients_of_all_reduce(on_three):
    for rank, (gradients, error) in enumerate(on_three["gradients_of_all_reduce"]):
        of_sum = [2.0 * (rank + 1) * 6, 4.0 * (rank + 1) * 6]
        of_mean = [g / SIZE for g in of_sum]
        assert gradients == [pytest.approx(g) for g in (of_sum, of_sum, of_mean, of_mean)]
        assert error[0] == "UnsupportedError"
        assert "op='max'" in error[1]


REFUSED = {
    "reduced already": ["UnsupportedError", "reduced already", "plain optimizer"],
    "reduced already, in a graph": ["UnsupportedError", "reduced already", "plain optimizer"],
    "applied inside of no_sync": ["TarantellaError", "tnt.no_sync", "apply them outside"],
    "weighted inside of no_sync": ["ValueError", "tnt.no_sync"],
    "no_sync around a function": ["UnsupportedError", "Enter it inside the function"],
    "no tape": ["TypeError", "needs a tf.GradientTape, not NoneType"],
    "no optimizer": ["TypeError", "needs an optimizer of Keras, not str"],
    "no variable": ["TypeError", "takes variables", "EagerTensor"],
    "two weights": ["ValueError", "both weight and samples"],
    "jacobian": ["UnsupportedError", "jacobian"],
    "nothing to broadcast to": ["TypeError", "takes variables", "ndarray"],
    "no such root": ["InvalidArgumentError", "root is"],
    "text": ["TypeError", "type string"],
    "no such operation": ["ValueError", "'mean'"],
}
REFUSED_ON_SEVERAL = {
    "tape in a model's step": ["UnsupportedError", "inside a training step of tnt.Model", "plain tf.GradientTape"],
    "optimizer in a model's step": ["UnsupportedError", "own of the model", "give the model the plain optimizer"],
    "optimizer of a model": ["UnsupportedError", "optimizer of the model", "give the model the plain optimizer"],
    "optimizer inside of a model's": ["UnsupportedError", "optimizer of the model", "give the model the plain optimizer"],
    "other variables": ["MismatchError", "rank 1", "v1", "(4 float64)", "(3 float64)"],
    "other variables, in a graph": ["MismatchError", "rank 1", "v1", "(4 float64)", "(3 float64)"],
    "other tables": ["MismatchError", "rank 1", "table", "(4104, 8)", "(4096, 8)"],
    "variables unknown": ["ValueError", "does not know its variables"],
}


def names(on_rank, name, words):
    kind, text = on_rank[name]
    assert kind == words[0], text
    for word in words[1:]:
        assert word in text


@pytest.mark.parametrize("name", REFUSED)
def test_refused(found, name):
    for on_rank in found["refused"]:
        names(on_rank, name, REFUSED[name])


@pytest.mark.parametrize("name", REFUSED_ON_SEVERAL)
def test_refused_on_several_ranks(on_three, name):
    for on_rank in on_three["refused"]:
        names(on_rank, name, REFUSED_ON_SEVERAL[name])


def test_the_job_goes_on(found):
    for error, spread in found["the_job_goes_on"]:
        assert error < TOLERANCE
        assert spread == 0.0
