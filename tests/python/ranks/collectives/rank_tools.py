"""Groups, collectives that are started and waited for, objects that are broadcast, and settings. No TensorFlow."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tarantella as tnt
from checks import check, raised, run
from tarantella import collectives

RANK, SIZE = tnt.get_rank(), tnt.get_size()
WORLD = tnt.Group()
TURNED = tnt.Group(reversed(range(SIZE)))
ENDS = tnt.Group(np.array([SIZE - 1, 0]))
GROUPS = [group for group in (WORLD, TURNED, ENDS) if group.contains_global_rank(RANK)]


@check
def groups() -> list[Any]:
    return [
        [WORLD.group, WORLD.size, WORLD.rank, WORLD.global_rank],
        [ENDS.group, ENDS.size, ENDS.global_rank, ENDS.to_global_rank(0), ENDS.to_group_rank(0)],
        [ENDS.contains_rank(1), ENDS.contains_rank(2), ENDS.contains_rank(-1)],
        [ENDS.contains_global_rank(rank) for rank in range(-1, SIZE + 1)],
        ENDS.rank if RANK in ENDS.group else raised(lambda: ENDS.rank),
        [tnt.Group([0, 1]) == tnt.Group(range(2)), len({WORLD, tnt.Group(), TURNED}), repr(ENDS)],
        [tnt.get_group_master_rank(ENDS), tnt.is_group_master_rank(ENDS), tnt.is_group_master_rank(WORLD)],
    ]


@check
def groups_that_cannot_be() -> list[list[str]]:
    return [raised(tnt.Group, ranks) for ranks in ([], [0, 0], [0, SIZE], [-1], ["0"])] + [
        raised(ENDS.to_global_rank, 2),
        raised(ENDS.to_group_rank, 1),
    ]


@check
def who_is_no_member_takes_no_part() -> list[list[str]]:
    outside = tnt.Group([(RANK + 1) % SIZE])
    made = [
        lambda: tnt.Allreduce(outside, 1),
        lambda: tnt.TensorAllreducer(1, group=outside),
        tnt.Barrier(outside).execute,
    ]
    return [raised(make) for make in made]


@check
def reductions() -> list[str]:
    wrong = []
    for group in GROUPS:
        for op in tnt.ReductionOp:
            for dtype in (None, float, "float32", np.int32, np.int16, np.uint64, bool, np.float16, ml_dtypes.bfloat16):
                kind = np.dtype(np.float64 if dtype is None else dtype)
                members = [(np.random.default_rng(rank).integers(0, 4, 50)).astype(kind) for rank in group.group]
                reduce = tnt.Allreduce(group, 50, op, algorithm="ring", dtype=dtype)
                reduce.start(members[group.rank])
                found = reduce.wait_for_completion()
                expected = reference(op, members).astype(kind)
                if found.dtype != kind or found.tobytes() != expected.tobytes():
                    wrong.append(f"{group} {op} {kind}: {found[:5]}, not {expected[:5]}")
    return wrong


def reference(op: tnt.ReductionOp, members: list[np.ndarray]) -> np.ndarray:
    table: dict[tnt.ReductionOp, Any] = {
        tnt.ReductionOp.SUM: np.add,
        tnt.ReductionOp.PROD: np.multiply,
        tnt.ReductionOp.MIN: np.minimum,
        tnt.ReductionOp.MAX: np.maximum,
        tnt.ReductionOp.AND: np.logical_and,
        tnt.ReductionOp.OR: np.logical_or,
    }
    exact = members[0].dtype.kind in "bu"
    return np.asarray(table[op].reduce([m if exact else m.astype(np.float64) for m in members]))


@check
def large_unsigned_numbers() -> list[list[int]]:
    values = np.array([2**63 + RANK, RANK, 2**64 - 1], np.uint64)
    found = []
    for op in (tnt.ReductionOp.MIN, tnt.ReductionOp.MAX):
        reduce = tnt.Allreduce(WORLD, 3, op, dtype=np.uint64)
        reduce.start(values)
        found.append(reduce.wait_for_completion().tolist())
    return found


@check
def broadcasts_and_gathers() -> list[bool]:
    found = []
    for group in GROUPS:
        for root in range(group.size):
            broadcast = tnt.Broadcast(group, 6, root, dtype=np.int8)
            broadcast.start(*([np.arange(6).reshape(2, 3).astype(np.int8) + group.global_rank] if group.rank == root else []))
            found.append(broadcast.wait_for_completion().tolist() == [group.to_global_rank(root) + i for i in range(6)])
        gather = tnt.Allgatherv(group, group.rank)
        for _ in range(2):
            gather.start([RANK] * group.rank)
            expected = [float(group.to_global_rank(rank)) for rank in range(group.size) for _ in range(rank)]
            found.append(gather.wait_for_completion().tolist() == expected)
        tnt.Barrier(group).execute()
        tnt.Barrier(group).synchronize()
    return found


@check
def start_does_not_wait() -> list[Any]:
    """The last rank comes late: the others have gone on meanwhile, and other collectives pass by."""
    reduce = tnt.Allreduce(WORLD, 4, tnt.ReductionOp.SUM)
    before = reduce.is_complete()
    if RANK == SIZE - 1:
        time.sleep(0.5)
    began = time.monotonic()
    reduce.start([RANK, 1, 2, 3])
    seconds, during = time.monotonic() - began, reduce.is_complete()
    total = int(tnt.all_reduce(1))
    return [before, seconds < 0.25, RANK == SIZE - 1 or not during, total, reduce.wait_for_completion().tolist()]


@check
def dropped_without_waiting() -> bool:
    """Memory that a running operation still writes to is nobody else's, and what comes later is right."""
    rng, right = np.random.default_rng(RANK), True
    for turn in range(8):
        if turn % SIZE == RANK:
            time.sleep(0.05)
        group = (WORLD, TURNED)[turn % 2]
        dropped = [tnt.Allreduce(group, 200_000, tnt.ReductionOp.SUM), tnt.Allgatherv(group, 50_000)]
        dropped[0].start(np.full(200_000, np.nan))
        dropped[1].start(np.full(50_000, np.nan))
        del dropped
        gc.collect()
        mine = [rng.standard_normal(200_000) for _ in range(4)]
        copies = [array.copy() for array in mine]
        right &= float(tnt.all_reduce(np.ones(1000)).max()) == SIZE
        right &= all((a == b).all() for a, b in zip(mine, copies, strict=True))
    return right


@check
def misuse() -> list[list[str]]:
    reduce = tnt.Allreduce(WORLD, 2, tnt.ReductionOp.SUM, dtype=int)
    found = [raised(reduce.wait_for_completion), raised(reduce.start, [1]), raised(reduce.start, [1.5, 2.5])]
    reduce.start([1, 2])
    found.append(raised(reduce.start, [1, 2]))
    reduce.wait_for_completion()
    found += [raised(tnt.Allreduce, WORLD, -1), raised(tnt.Allreduce, WORLD, 1, "mean"), raised(tnt.Broadcast, WORLD, 1, SIZE)]
    found.append(raised(tnt.Allreduce, WORLD, 1, tnt.ReductionOp.MAX, None, complex))
    return [*found, raised(tnt.Allgatherv, WORLD, 1, None, object)]


@check
def what_differs_is_named() -> list[list[str]]:
    last = RANK == SIZE - 1
    ops = [tnt.ReductionOp.SUM, tnt.ReductionOp.MAX]
    return [
        raised(tnt.Allreduce, WORLD, 2 + last),
        raised(tnt.Allreduce, WORLD, 2, ops[last]),
        raised(tnt.Allreduce, WORLD, 2, ops[0], None, [np.float32, np.float64][last]),
        raised(tnt.Broadcast, WORLD, 2, int(last)),
        raised(tnt.Allreduce, ENDS, 2 + last) if RANK in ENDS.group else [],
    ]


OBJECT = {
    "text": "ü \ud800",
    "numbers": [1, -(2**80), 0.1, float("inf"), True, None],
    "nested": ((), [[]], {"": {}}),
    3: {None: 1, True: 2, 2.5: 3},
    "array": np.arange(6, dtype=">i4").reshape(2, 3).T,
    "others": [np.array([], bool), np.array(7.5), np.float16(1.5), np.array(["a", "bc"]), np.arange(2).astype("M8[s]")],
    "narrow": np.array([1.5, 2.5], ml_dtypes.bfloat16),
    "looks like ours": ["list", ["dict"], ["array", "<f8", [1]]],
}


@check
def objects() -> list[bool]:
    found = []
    for root in range(SIZE):
        given = {"of": root, **OBJECT}
        result = tnt.broadcast_object(given if root == RANK else None, root)
        found.append(describe(result) == describe(given))
    return found + [tnt.broadcast_object(x) == x for x in (None, 1, "", [], ())]


def describe(x: Any) -> Any:
    """What can be compared with ==, types and all."""
    if isinstance(x, np.ndarray | np.generic):
        return [type(x), x.dtype, x.shape, x.tobytes()]
    if isinstance(x, dict):
        return [dict, [(describe(key), describe(value)) for key, value in x.items()]]
    return [type(x), [describe(value) for value in x]] if isinstance(x, list | tuple) else [type(x), x]


@check
def objects_that_cannot_be_sent() -> list[list[str]]:
    bad = [{"a": {1}}, b"bytes", lambda: None, np.array([object()]), np.zeros(1, "i4,f4")]
    return [raised(tnt.broadcast_object, x if RANK == 1 else None, 1) for x in bad] + [raised(tnt.broadcast_object, 1, SIZE)]


@check
def an_object_is_one_collective_for_a_guard() -> list[Any]:
    calls: list[int] = []

    def guard(collective: Callable[[], Any]) -> Any:
        calls.append(len(calls))
        with collectives.guarded(lambda inner: inner()):
            return collective()

    with collectives.guarded(guard):
        objects = [tnt.broadcast_object({"rank": RANK}, 1), collectives.as_one(lambda: tnt.broadcast_object(RANK, 2))]
    return [objects, len(calls)]


@check
def settings() -> list[Any]:
    config = tnt.global_tnt_config
    return [
        config.gpus_per_node,
        config.log_level,
        config.log_on_all_devices,
        config.output_on_all_devices,
        config.tensorboard_on_all_devices,
        config.fusion_threshold,
        repr(config),
        raised(setattr, config, "log_level", "DEBUG")[0],
        tnt.logger is logging.getLogger("TNT_LIB"),
    ]


@check
def tensorflow_was_not_needed() -> bool:
    return "tensorflow" not in sys.modules


run(sys.argv[1])
