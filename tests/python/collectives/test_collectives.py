"""all_reduce, all_gather and broadcast of NumPy arrays: every element type, any shape, and what is refused."""

from __future__ import annotations

import json

import pytest

from support.findings import Findings
from support.launch import RANKS, run_ranks

SIZE = 3


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "collectives/collectives.py", forked=False)  # without TensorFlow


@pytest.mark.parametrize("name", ["all_reduce_of_every_type_and_operation", "all_gather", "broadcast"])
def test_results_are_numpys(found, name):
    for wrong in found[name]:
        assert not wrong


def test_arrays_that_are_not_contiguous(found):
    assert found["all_reduce_of_what_is_not_contiguous"] == [[True] * 5] * SIZE
    assert found["broadcast_of_what_is_not_contiguous"] == [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]] * SIZE


def test_the_other_byte_order(found):
    assert found["all_reduce_of_the_other_byte_order"] == [[3.0, 7.5]] * SIZE


def test_numbers_and_lists(found):
    assert found["all_reduce_of_what_is_no_array"] == [[4.5, 6, [[3, 6], [9, 12]], []]] * SIZE


def test_what_is_refused(found):
    for *operations, boolean, complex_, objects, text in found["all_reduce_is_refused"]:
        for error, op in zip(operations, ("mean", ""), strict=True):
            assert error == ["ValueError", f"op is {op!r}: use one of sum, avg, min, max, prod"]
        for error, name in ((boolean, "bool"), (complex_, "complex128"), (objects, "object"), (text, "str128")):
            assert error[0] == "TypeError"
            assert f"type {name}: use one of float32" in error[1]
    for too_large, negative, *objects in found["broadcast_and_gather_are_refused"]:
        for error, root in ((too_large, SIZE), (negative, -1)):
            assert error[0] == "InvalidArgumentError"
            assert str(root) in error[1]
        assert objects == [["TypeError", "cannot send Python objects: use an array of numbers"]] * 2


def test_no_mask_is_lost(found):
    refused = [
        "TypeError",
        "a masked array would lose its mask, as ranks exchange plain arrays: give what x.filled(value) returns",
    ]
    assert found["masked_arrays"] == [[[refused] * 3, [3.0, 6.0], [3.0, 0.0]]] * SIZE


def test_many_bytes(found):
    assert found["large"] == [[6.0, 6.0]] * SIZE


def test_many_calls(found):
    assert found["often"] == [sum(step % 7 * SIZE + step + SIZE for step in range(300))] * SIZE


def test_where_ranks_stand(found):
    assert found["where_we_stand"] == [[rank, SIZE, rank, SIZE, 0, int(rank == 0)] for rank in range(SIZE)]


def test_tensorflow_is_not_needed(found):
    assert all(found["tensorflow_was_not_needed"])


MISMATCHES = {
    "shape": "tnt.all_reduce(np.ones(3 + rank))",
    "type": "tnt.all_reduce(np.ones(3, [np.float32, np.float64][rank]))",
    "operation": "tnt.all_reduce(np.ones(3), ['sum', 'max'][rank])",
    "root": "tnt.broadcast(np.ones(3), rank)",
    "collective": "[tnt.barrier, lambda: tnt.all_gather(1)][rank]()",
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_calls_that_differ(tmp_path, what):
    source = f"""
        import json, sys
        from pathlib import Path
        import numpy as np
        import tarantella as tnt
        rank = tnt.get_rank()
        found = []
        for _ in range(2):  # the second time the communication has ended already
            try:
                {MISMATCHES[what]}
                if _: tnt.barrier()
            except tnt.TarantellaError as error:
                found.append([type(error).__name__, str(error)])
        Path(sys.argv[1], f"{{rank}}.json").write_text(json.dumps(found))
        """
    result = run_ranks(2, source, tmp_path, timeout=20, env={"TNT_TIMEOUT": "5"})
    assert not result.left_behind
    (first, again), others = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert [first, again] == others, result.said
    assert first == again
    assert first[0] == "MismatchError", first
    assert "rank 0" in first[1]
    assert "rank 1" in first[1]
