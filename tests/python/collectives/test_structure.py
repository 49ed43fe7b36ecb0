"""Taking structures apart, putting them together, and encoding objects: whatever they look like. One process, no ranks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarantella.collectives.arrays import as_array, pack, unpack
from tarantella.collectives.objects import _Decoder, _encode
from tarantella.collectives.wire import wire_format
from tarantella.compat.operations import ReductionOp
from tarantella.compat.structure import flatten, rebuild

NUMBERS = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False))
KEYS = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none())
DTYPES = ["?", "i1", "u2", ">i4", "f2", "f4", "f8", "c8", "U3"]
ARRAYS = st.builds(
    lambda dtype, shape: np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
)


def containers(leaves: Any) -> Any:
    return st.recursive(
        leaves, lambda x: st.one_of(st.lists(x), st.lists(x).map(tuple), st.dictionaries(KEYS, x)), max_leaves=12
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(b, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return isinstance(a, dict) and all(same(k, m) and same(v, w) for (k, v), (m, w) in pairs)
    if isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@settings(max_examples=150, deadline=None)
@given(containers(NUMBERS))
def test_what_was_taken_apart_is_put_together(x):
    leaves = flatten(x)
    assert same(rebuild(x, [leaf.array.item() for leaf in leaves]), x)
    assert len({leaf.name for leaf in leaves}) == len(leaves)
    for leaf in leaves:
        assert eval(leaf.name, {"inputs": x}) == leaf.array.item()


@settings(max_examples=150, deadline=None)
@given(containers(st.one_of(NUMBERS, st.none(), st.text(), ARRAYS)))
def test_what_was_encoded_is_decoded(x):
    arrays: list[np.ndarray] = []
    text = json.dumps(_encode(x, arrays))
    assert same(_Decoder(pack(arrays)).decode(json.loads(text)), x)


@settings(max_examples=60, deadline=None)
@given(st.lists(ARRAYS, max_size=4))
def test_what_was_packed_is_unpacked(arrays):
    found = unpack(pack(arrays), arrays)
    assert same(found, arrays)
    assert all(array.flags.writeable for array in found)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["i2", "u2", "u4", "u8", "?"]), st.sampled_from(ReductionOp), st.data())
def test_types_that_travel_as_others(name, op, data):
    dtype = np.dtype(name)
    low, high = (0, 1) if name == "?" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    members = [np.array(data.draw(st.lists(st.integers(low, high), min_size=3, max_size=3)), dtype) for _ in range(3)]
    how = wire_format(dtype, op.value)
    sent = [how.encode(member) for member in members]
    by_library = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    found = how.decode(by_library[how.op].reduce(sent, dtype=sent[0].dtype))
    ufuncs = {"SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
    logical = {"AND": np.logical_and, "OR": np.logical_or}
    expected = (ufuncs | logical)[op.name].reduce(members, dtype=None if op.name in logical else dtype)
    assert same(found, expected.astype(dtype))


def test_arrays_are_not_copied():
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = np.arange(4.0)
    assert as_array(array) is array
    assert np.shares_memory(as_array(Foreign(array)), array)
    assert np.shares_memory(as_array(memoryview(array)), array)


def test_what_cannot_be_reduced():
    for name, op in (("c8", ReductionOp.MAX), ("U1", ReductionOp.SUM), ("M8[s]", ReductionOp.SUM), ("O", ReductionOp.AND)):
        with pytest.raises(TypeError, match=f"cannot take the {op.name} of elements of type"):
            wire_format(np.dtype(name), op.value)
