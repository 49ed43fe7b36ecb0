"""tnt.TensorAllreducer, TensorBroadcaster and TensorAllgatherer, compared with NumPy in float64. No TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 0, 2), (7,), (2, 3, 4), (10_001,)]


class OnlyDlpack:
    """An array of another library: it has DLPack, and nothing of NumPy's."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class OnAnotherDevice(OnlyDlpack):
    def __dlpack__(self, **how: Any) -> Any:
        raise BufferError("the array lies on a GPU")


def numbers(shape: tuple[int, ...], rank: int) -> np.ndarray:
    return np.random.default_rng(rank).uniform(-9, 9, shape)


def same(found: Any, expected: Any) -> bool:
    """Equal, with equal types, however deep."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return type(found) is type(expected) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and found.shape == expected.shape
            and (found.tobytes() == expected.tobytes())
        )
    return type(found) is type(expected) and found == expected


def sums_that_are_wrong(dtypes: list[Any], expected: Callable[[list[np.ndarray], Any], np.ndarray]) -> list[str]:
    wrong = []
    for dtype in dtypes:
        for shape in SHAPES:
            all_ranks = [np.asarray(numbers(shape, rank)).astype(np.int64).astype(dtype) for rank in range(SIZE)]
            total = tnt.TensorAllreducer(all_ranks[RANK]).allreduce(all_ranks[RANK])
            if not same(total, np.asarray(expected(all_ranks, np.dtype(dtype)))):
                wrong.append(f"{np.dtype(dtype)} {shape}: {total!r}")
    return wrong


@check
def sums_of_floats() -> list[str]:
    """Of small whole numbers: no type rounds."""
    return sums_that_are_wrong(FLOATS, lambda ranks, dtype: np.sum([r.astype(np.float64) for r in ranks], axis=0).astype(dtype))


@check
def sums_of_integers() -> list[str]:
    """They wrap as NumPy's do."""
    return sums_that_are_wrong(INTEGERS, lambda ranks, dtype: np.add.reduce(ranks, dtype=dtype))


@check
def sums_of_complex_numbers() -> list[str]:
    return sums_that_are_wrong([np.complex64, np.complex128], lambda ranks, dtype: np.add.reduce(ranks, dtype=dtype))


@check
def sums_of_booleans() -> list[str]:
    return sums_that_are_wrong([np.bool_], lambda ranks, dtype: np.logical_or.reduce(ranks))


@check
def rounded_sums() -> list[float]:
    """The largest relative errors against float64, in units of the type's precision."""
    errors = []
    for dtype in FLOATS[:3]:
        all_ranks = [numbers((999,), rank).astype(dtype) for rank in range(SIZE)]
        truth = np.sum([r.astype(np.float64) for r in all_ranks], axis=0)
        found = tnt.TensorAllreducer(all_ranks[RANK]).allreduce(all_ranks[RANK]).astype(np.float64)
        scale = np.sum([np.abs(r.astype(np.float64)) for r in all_ranks], axis=0)
        errors.append(float(np.max(np.abs(found - truth) / scale) / float(ml_dtypes.finfo(dtype).eps)))
    return errors


def nested(rank: int, times: int = 1) -> dict[Any, Any]:
    return {
        "z": [times * (rank + 1), times * 0.5, (np.float32(times * rank), [])],
        "a": {1: np.full((2, 2), times * 3, np.int16), 0: np.array([], np.float16)},
        "flag": True,
    }


@check
def structures() -> list[bool]:
    total = SIZE * (SIZE + 1) // 2
    expected = nested(0, SIZE)
    expected["z"] = [total, np.float64(SIZE * 0.5), (np.float32(SIZE * (SIZE - 1) / 2), [])]
    given = nested(RANK)
    found = tnt.TensorAllreducer(given).allreduce(given)
    return [same(found, expected), list(found) == ["z", "a", "flag"], isinstance(found["z"][1], float), found["flag"] is True]


@check
def nothing_at_all() -> bool:
    return all(
        same(tnt.TensorAllreducer(x).allreduce(x), x) and same(tnt.TensorBroadcaster(x).broadcast(x), x)
        for x in ([], {}, (), [[], {}], np.zeros((0, 4)))
    )


@check
def again_with_other_values() -> list[float]:
    reducer = tnt.TensorAllreducer(0.0)
    return [float(reducer.allreduce(x)) for x in (1.0, np.float64(2), 3, np.float32(0.25))]


@check
def started_and_waited_for() -> list[Any]:
    first, second = tnt.TensorAllreducer({"x": np.zeros(3)}), tnt.TensorAllreducer(1)
    mine = {"x": np.full(3, RANK + 1.0)}
    first.start(mine)
    second.start(RANK)
    mine["x"][:] = -1  # what was started has a copy
    return [second.wait_for_completion(), first.wait_for_completion(mine)["x"].tolist()]


@check
def calls_that_do_not_fit() -> list[list[str]]:
    reducer = tnt.TensorAllreducer([1, np.zeros(2, np.float32)])
    found = [
        raised(reducer.wait_for_completion),
        raised(reducer.allreduce, [1]),
        raised(reducer.allreduce, [1.5, np.zeros(2, np.float32)]),
        raised(reducer.allreduce, [1, np.zeros(3, np.float32)]),
        raised(tnt.TensorBroadcaster(1, root_rank=RANK * 0).broadcast) if RANK == 0 else [],
    ]
    if RANK != 0:
        tnt.TensorBroadcaster(1)
    reducer.start([1, np.zeros(2, np.float32)])
    found.append(raised(reducer.start, [1, np.zeros(2, np.float32)]))
    reducer.wait_for_completion()
    return found


@check
def what_is_refused_alike() -> list[list[str]]:
    return [raised(tnt.TensorAllreducer, x) for x in ("text", {"a": [None]}, [object()], np.array(["a"]))]


@check
def what_differs_is_named() -> list[list[str]]:
    kinds: list[Any] = [np.ones(2), np.ones(3)], [1, 1.5], [{"a": 1}, {"b": 1}], [[1, 2], [1]], [1, np.ones(())], [1, "a"]
    return [raised(tnt.TensorAllreducer, both[RANK == SIZE - 1]) for both in kinds] + [
        raised(tnt.TensorAllgatherer, [1.0, 1][RANK == SIZE - 1]),
        raised(tnt.TensorBroadcaster, 1, RANK),
        [str(tnt.TensorAllreducer(1).allreduce(1))],  # the ranks are in step after it
    ]


@check
def broadcasts() -> list[bool]:
    found = []
    for root in range(SIZE):
        mine, roots = nested(RANK), nested(root)
        broadcaster = tnt.TensorBroadcaster(mine, root_rank=root)
        result = broadcaster.broadcast(mine) if root == RANK else broadcaster.broadcast()
        roots["z"][1] = np.float64(roots["z"][1])
        found.append(same(result, roots))
    return found


@check
def broadcasts_of_every_type() -> list[str]:
    wrong = []
    for dtype in [*FLOATS, *INTEGERS, np.bool_, np.complex64]:
        for shape in SHAPES:
            mine, expected = (np.asarray(numbers(shape, rank)).astype(dtype) for rank in (RANK, 1))
            if not same(tnt.TensorBroadcaster(mine, 1).broadcast(mine), expected):
                wrong.append(f"{np.dtype(dtype)} {shape}")
    return wrong


@check
def gathers() -> list[Any]:
    found: list[Any] = [tnt.TensorAllgatherer(RANK).allgather(RANK).tolist()]
    shapes: list[Callable[[int], Any]] = [lambda rank: (rank,), lambda rank: (2, rank + 1), lambda _: (0,), lambda _: (3,)]
    for shape in shapes:
        for dtype in (np.float16, np.bool_, np.int64):
            mine, *parts = (np.full(shape(rank), rank).astype(dtype) for rank in (RANK, *range(SIZE)))
            result = tnt.TensorAllgatherer(mine).allgather(mine)
            found.append(same(result, np.concatenate([part.ravel() for part in parts])))
    return found


@check
def arrays_of_other_libraries() -> list[Any]:
    array = np.arange(4.0) + RANK
    foreign = OnlyDlpack(array)
    return [
        tnt.all_reduce(foreign).tolist(),
        tnt.all_gather(OnlyDlpack(np.array([RANK]))).tolist(),
        tnt.broadcast(foreign, 1).tolist(),
        tnt.TensorAllreducer([foreign]).allreduce([foreign])[0].tolist(),
        raised(tnt.all_reduce, OnAnotherDevice(array)),
    ]


@check
def results_in_place() -> list[Any]:
    array, other, scalar = np.arange(6.0).reshape(2, 3) + RANK, np.empty((2, 3)), np.array(RANK)
    given = array.copy()
    found = [tnt.all_reduce(array, out=other) is other, np.array_equal(array, given), other.tolist()]
    found += [tnt.all_reduce(array, out=array) is array, np.array_equal(array, other)]
    found += [int(tnt.all_reduce(scalar, "max", out=scalar)), int(scalar)]
    row = np.arange(5.0)
    found.append(tnt.all_reduce(row[:4], out=row[1:]).tolist())  # they overlap
    locked = np.zeros(2)
    locked.flags.writeable = False
    neither = np.broadcast_to(0.0, 2)
    outs = [np.zeros(3), np.zeros(2, np.float32), np.zeros(4)[::2], locked, neither]
    return [*found, [raised(tnt.all_reduce, np.zeros(2), "sum", out) for out in outs]]


@check
def tensorflow_was_not_needed() -> bool:
    return "tensorflow" not in sys.modules


run(sys.argv[1])
