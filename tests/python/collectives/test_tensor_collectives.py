"""tnt.TensorAllreducer, TensorBroadcaster, TensorAllgatherer: every kind and type, and what ranks that differ are told."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 3


@pytest.fixture(scope="module")
def found():
    return Findings(
        SIZE, RANKS / "collectives/tensor_collectives.py", env={"TNT_TIMEOUT": "60"}, forked=False
    )  # without TensorFlow


@pytest.mark.parametrize(
    "name",
    ["sums_of_floats", "sums_of_integers", "sums_of_complex_numbers", "sums_of_booleans", "broadcasts_of_every_type"],
)
def test_results_are_numpys(found, name):
    assert found[name] == [[]] * SIZE


def test_sums_are_rounded_once(found):
    for errors in found["rounded_sums"]:
        assert all(error <= 0.5 for error in errors[:2])  # 16 bits: summed in float32
        assert errors[2] <= SIZE


def test_results_have_the_inputs_form(found):
    assert found["structures"] == [[True] * 4] * SIZE
    assert found["nothing_at_all"] == [True] * SIZE
    assert found["broadcasts"] == [[True] * SIZE] * SIZE


def test_one_reducer_serves_many_calls(found):
    assert found["again_with_other_values"] == [[3.0, 6.0, 9.0, 0.75]] * SIZE


def test_started_now_and_waited_for_later(found):
    assert found["started_and_waited_for"] == [[3, [6.0, 6.0, 6.0]]] * SIZE


def test_calls_that_do_not_fit_are_refused(found):
    for rank, (early, fewer, kind, shape, root, twice) in enumerate(found["calls_that_do_not_fit"]):
        was_made = "TensorAllreducer was made for"
        assert early == ["InvalidArgumentError", "TensorAllreducer: nothing was started: call start first"]
        assert fewer == ["InvalidArgumentError", f"{was_made} 2 numbers, arrays or tensors: it was given 1"]
        number = "inputs[0]: number of"
        assert kind == ["InvalidArgumentError", f"{was_made} {number} int64: it was given {number} float64"]
        array = "inputs[1]: array of float32 and shape"
        assert shape == ["InvalidArgumentError", f"{was_made} {array} (2,): it was given {array} (3,)"]
        if rank == 0:
            assert root == ["InvalidArgumentError", "TensorBroadcaster: the root has to give what to broadcast"]
        assert twice == ["InvalidArgumentError", "TensorAllreducer was started already: call wait_for_completion first"]


def test_what_holds_no_numbers_is_refused(found):
    use = "use numbers, arrays and tensors, or lists, tuples and dicts of them"
    for text, none, thing, strings in found["what_is_refused_alike"]:
        assert text == ["TypeError", f"inputs is a str: {use}"]
        assert none == ["TypeError", f"inputs['a'][0] is a NoneType: {use}"]
        assert thing == ["TypeError", f"inputs[0] is a object: {use}"]
        assert strings[0] == "TypeError"
        assert strings[1].startswith("cannot take the SUM of elements of type str32: use numbers")


def test_ranks_that_differ_are_told_where(found):
    def told(theirs, ours, who="TensorAllreducer", rank=SIZE - 1):
        return ["MismatchError", f"{who}: rank {rank} has {theirs}; rank 0 has {ours}. Give it the same on all ranks"]

    expected = [
        told("inputs: array of float64 and shape (3,)", "inputs: array of float64 and shape (2,)"),
        told("inputs: number of float64", "inputs: number of int64"),
        told("inputs['b']: number of int64", "inputs['a']: number of int64"),
        told("nothing more", "inputs[1]: number of int64"),
        told("inputs: array of float64 and shape ()", "inputs: number of int64"),
    ]
    for rank, (*alike, one_fails, gatherer, root, after) in enumerate(found["what_differs_is_named"]):
        assert alike == expected
        text = "inputs is a str: use numbers, arrays and tensors, or lists, tuples and dicts of them"
        last = rank == SIZE - 1
        assert one_fails == (["TypeError", text] if last else told(f"an error, {text}", "inputs: number of int64"))
        assert gatherer == told("number of int64", "number of float64", "TensorAllgatherer")
        assert root == told("root 1", "root 0", "TensorBroadcaster", rank=1)
        assert after == [str(SIZE)]


def test_elements_are_gathered_in_the_order_of_ranks(found):
    assert found["gathers"] == [[list(range(SIZE)), *[True] * 12]] * SIZE


def test_arrays_of_other_libraries_are_read_where_they_lie(found):
    total = [3.0, 6.0, 9.0, 12.0]
    refused = ["TypeError", "cannot read a OnAnotherDevice without a copy in the host's memory: the array lies on a GPU"]
    assert found["arrays_of_other_libraries"] == [[total, [[0], [1], [2]], [1.0, 2.0, 3.0, 4.0], total, refused]] * SIZE


def test_results_in_place(found):
    total = [[3.0, 6.0, 9.0], [12.0, 15.0, 18.0]]
    for *results, refused in found["results_in_place"]:
        assert results[:5] == [True, True, total, True, True]
        assert results[5:] == [SIZE - 1, SIZE - 1, [0.0, 3.0, 6.0, 9.0]]
        assert {error[0] for error in refused} == {"ValueError"}
        texts = [error[1].partition(": give")[0] for error in refused]
        assert texts[:2] == [f"out must be an array of shape (2,) and type float64, not of shape {other}" for other in (
            "(3,) and type float64", "(2,) and type float32"
        )]  # fmt: skip
        contiguous = "contiguous (in C's order, not a transposed array or a slice with a step)"
        assert texts[2:] == [f"out must be {contiguous}", "out must be writable", f"out must be {contiguous} and writable"]


def test_tensorflow_is_not_needed(found):
    assert all(found["tensorflow_was_not_needed"])
