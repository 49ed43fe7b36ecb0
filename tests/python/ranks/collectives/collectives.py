"""The collectives on NumPy arrays, compared with NumPy: each rank knows what all ranks put in. No TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (0,), (3, 0, 2), (7,), (4, 5), (2, 3, 4), (1000,), (300_001,)]
OPS: dict[str, Callable[[Any, Any], Any]] = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def inputs(shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    """What each rank puts in."""
    numbers = [np.random.default_rng(rank).uniform(-4, 4, shape) for rank in range(SIZE)]
    return [np.asarray(np.abs(n) if dtype == np.uint8 else n).astype(dtype) for n in numbers]


def in_tree(combine: Callable[[np.ndarray, np.ndarray], np.ndarray], terms: list[np.ndarray]) -> np.ndarray:
    """Pairs of the first terms until a power of two is left, then neighbours, level by level."""
    leaves = 1 << (len(terms).bit_length() - 1)
    pairs = len(terms) - leaves
    terms = [combine(terms[2 * i], terms[2 * i + 1]) for i in range(pairs)] + terms[2 * pairs :]
    while len(terms) > 1:
        terms = [combine(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def reference(op: str, all_ranks: list[np.ndarray]) -> np.ndarray:
    """Sums in the tree over ranks; 16 bits are added up in float32 and rounded once."""
    dtype = all_ranks[0].dtype
    wide = [a.astype(np.float32) for a in all_ranks] if dtype.itemsize == 2 else all_ranks
    if op == "avg":
        total = in_tree(np.add, wide)
        if dtype.kind in "iu":
            return np.asarray(np.trunc(total.astype(np.int64) / SIZE)).astype(dtype)
        return np.asarray(total / SIZE).astype(dtype)
    return np.asarray(in_tree(OPS[op], wide)).astype(dtype)


def differences(dtype: Any, op: str) -> list[str]:
    """For which shapes the result is not NumPy's, bit for bit (averages and products: to rounding)."""
    wrong = []
    for shape in SHAPES:
        all_ranks = inputs(shape, dtype)
        expected = reference(op, all_ranks)
        before = all_ranks[RANK].copy()
        result = tnt.all_reduce(all_ranks[RANK], op)
        same = result.tobytes() == expected.tobytes()
        if op in ("avg", "prod") and not same and np.dtype(dtype).kind not in "iu":
            rtol = 4 * float(ml_dtypes.finfo(dtype).eps)
            same = np.allclose(result.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=0)
        if not same or result.shape != shape or result.dtype != dtype:
            wrong.append(f"{shape}: {result.dtype} {result.shape} {result.ravel()[:3]}, not {expected.ravel()[:3]}")
        if before.tobytes() != all_ranks[RANK].tobytes():
            wrong.append(f"{shape}: the input was changed")
    return wrong


@check
def all_reduce_of_every_type_and_operation() -> dict[str, list[str]]:
    wrong = {f"{np.dtype(dtype).name} {op}": differences(dtype, op) for dtype in DTYPES for op in [*OPS, "avg"]}
    return {name: found for name, found in wrong.items() if found}


@check
def all_reduce_of_what_is_not_contiguous() -> list[bool]:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6) + RANK
    total = sum(np.arange(24, dtype=np.float32).reshape(4, 6) + rank for rank in range(SIZE))
    parts = [(whole.T, total.T), (whole[::2, 1::2], total[::2, 1::2]), (whole[:, ::-1], total[:, ::-1])]
    parts.append((np.asfortranarray(whole), total))
    parts.append((np.broadcast_to(whole[:1], (3, 6)), np.broadcast_to(total[:1], (3, 6))))
    return [np.array_equal(tnt.all_reduce(mine), expected) for mine, expected in parts]


@check
def all_reduce_of_the_other_byte_order() -> list[float]:
    return tnt.all_reduce(np.array([1.0, 2.5], dtype=np.dtype(np.float32).newbyteorder())).tolist()


@check
def all_reduce_of_what_is_no_array() -> list[Any]:
    return [tnt.all_reduce(x).tolist() for x in (1.5, 2, [[1, 2], [3, 4]], [])]


@check
def all_reduce_is_refused() -> list[list[str]]:
    calls = [([1.0], "mean"), ([1.0], ""), ([True], "sum"), ([1j], "sum"), ([object()], "sum"), (["text"], "sum")]
    return [raised(tnt.all_reduce, *call) for call in calls]


@check
def masked_arrays() -> list[Any]:
    masked, whole = np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0])
    calls = (tnt.all_reduce, tnt.all_gather, tnt.broadcast)
    return [[raised(call, masked) for call in calls], tnt.all_reduce(whole).tolist(), tnt.all_reduce(masked.filled(0)).tolist()]


@check
def all_gather() -> list[list[str]]:
    wrong = []
    for dtype in [*DTYPES, np.bool_, np.complex64, "S3", "U2", "datetime64[s]"]:
        for shape in [(), (0,), (3,), (2, 5)]:
            all_ranks = [np.full(shape, rank + 1).astype(dtype) for rank in range(SIZE)]
            result = tnt.all_gather(all_ranks[RANK])
            expected = np.stack(all_ranks)
            if result.shape != expected.shape or result.dtype != expected.dtype or result.tobytes() != expected.tobytes():
                wrong.append([str(dtype), str(shape), str(result)])
    return wrong


@check
def broadcast() -> list[list[str]]:
    wrong = []
    for root in range(SIZE):
        for dtype in [*DTYPES, np.bool_, np.complex64, "S3"]:
            for shape in [(), (0,), (3,), (2, 5)]:
                mine, expected = (np.full(shape, (value + 1) % 2).astype(dtype) for value in (RANK, root))
                mine.flags.writeable = False
                result = tnt.broadcast(mine, root)
                if result.shape != shape or result.dtype != expected.dtype or result.tobytes() != expected.tobytes():
                    wrong.append([str(root), str(dtype), str(shape), str(result)])
    return wrong


@check
def broadcast_of_what_is_not_contiguous() -> list[list[float]]:
    return tnt.broadcast(np.arange(6.0).reshape(2, 3).T + RANK, 1).tolist()


@check
def broadcast_and_gather_are_refused() -> list[list[str]]:
    return [
        raised(tnt.broadcast, [1.0], SIZE),
        raised(tnt.broadcast, [1.0], -1),
        raised(tnt.broadcast, [object()]),
        raised(tnt.all_gather, [None]),
    ]


@check
def large() -> list[float]:
    """More than fits into one piece of shared memory."""
    result = tnt.all_reduce(np.full(5_000_000, RANK + 1, np.float64))
    return [float(result.min()), float(result.max())]


@check
def often() -> int:
    """Many small ones after one another, of changing kinds."""
    total = 0
    for step in range(300):
        total += int(tnt.all_reduce(step % 7)) + int(tnt.broadcast(step, step % SIZE)) + len(tnt.all_gather(step))
        tnt.barrier()
    return total


@check
def where_we_stand() -> list[int]:
    found = [tnt.get_rank(), tnt.get_size(), tnt.get_local_rank(), tnt.get_local_size(), tnt.get_master_rank()]
    return [*found, int(tnt.is_master_rank())]


@check
def tensorflow_was_not_needed() -> bool:
    return "tensorflow" not in sys.modules


run(sys.argv[1])
