"""Horovod's collectives under Horovod's name, eagerly and inside a `tf.function`, compared with NumPy."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from checks import check, raised, run
from tarantella import settings
from tarantella.horovod.tensorflow import negotiation

FOLDER = sys.argv[1]

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)


def numbers(rank: int, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=(rows, 3)) + 2


ALL = np.stack([numbers(rank) for rank in RANKS])


def both(function: Any, *args: Any) -> list[np.ndarray]:
    """The result eagerly and inside a graph."""
    return [np.asarray(f(*args)) for f in (function, tf.function(function))]


def close(found: list[np.ndarray], expected: Any) -> bool:
    return all(f.shape == np.shape(expected) and np.allclose(f, expected, rtol=1e-6) for f in found)


@check
def names() -> list[Any]:
    import tarantella.horovod.tensorflow as ours

    place = [hvd.local_rank() == RANK, hvd.local_size() == SIZE, hvd.cross_rank() == 0, hvd.cross_size() == 1]
    return [hvd is ours, hvd.is_initialized(), hvd.is_homogeneous(), not hvd.gloo_built(), *place]


@check
def reductions() -> dict[str, bool]:
    x = tf.constant(numbers(RANK))

    def scaled(x: tf.Tensor) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)

    found = {
        "average": close(both(hvd.allreduce, x), ALL.mean(0)),
        "sum": close(both(lambda x: hvd.allreduce(x, average=False), x), ALL.sum(0)),
        "scaled": close(both(scaled, x), ALL.sum(0) * 1.5),
        "integers": close(both(lambda x: hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.5), tf.constant([RANK, 3])),
                          [SIZE * (SIZE - 1) // 2 // 2, 3 * SIZE // 2]),
        "numpy": np.allclose(hvd_keras.allreduce(numbers(RANK), name="x"), ALL.mean(0)),
    }  # fmt: skip
    for op, expected in ((hvd.Min, ALL.min(0)), (hvd.Max, ALL.max(0)), (hvd.Product, ALL.prod(0))):
        found[op.name] = close(both(lambda x, op=op: hvd.allreduce(x, op=op), x), expected)
    for name in ("fp16", "bf16"):
        sent = hvd.allreduce(tf.cast(x, tf.float32), compression=getattr(hvd.Compression, name)).numpy()
        found[name] = sent.dtype == np.float32 and np.allclose(sent, ALL.mean(0), rtol=2e-2)
    grouped = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
    found["grouped"] = np.allclose(grouped[1], 2 * ALL.sum(0)) and len(grouped) == 2
    mixed = [tf.range(6) + RANK, x[0], tf.constant(float(RANK), tf.float64), tf.fill([2, 2], RANK)]
    together = both(lambda: hvd.grouped_allreduce(mixed, op=hvd.Max, name="g")[1])
    found["mixed"] = close(together, ALL[:, 0].max(0))
    rest = hvd.grouped_allreduce(mixed, op=hvd.Max, name="g")
    found["types"] = [t.numpy().tolist() for t in rest[::3]] == [[i + SIZE - 1 for i in range(6)], [[SIZE - 1] * 2] * 2]
    found["scalar"] = rest[2].shape == [] and float(rest[2]) == SIZE - 1
    slices = hvd.allreduce(tf.IndexedSlices(x[:1], [RANK], tf.constant([8, 3])))
    found["rows"] = np.allclose(slices.values, ALL[:, 0] / SIZE) and slices.indices.numpy().tolist() == list(RANKS)
    return {name: bool(right) for name, right in found.items()}


@check
def by_rows() -> dict[str, bool]:
    mine = numbers(RANK, RANK + 1)
    everything = np.concatenate([numbers(rank, rank + 1) for rank in RANKS])
    splits = [RANK + to for to in RANKS]
    rows, received = hvd.alltoall(tf.range(sum(splits)) + 100 * RANK, splits=splits)
    came = np.concatenate([100 * r + sum(r + to for to in range(RANK)) + np.arange(r + RANK) for r in RANKS])
    tall = np.stack([numbers(rank, 2 * SIZE + 1) for rank in RANKS])
    share = slice(0, 3) if RANK == 0 else slice(2 * RANK + 1, 2 * RANK + 3)
    variables = [tf.Variable(float(RANK)), tf.Variable([RANK > 0])]
    hvd.broadcast_(variables, SIZE - 1)
    return {
        "gathered": close(both(hvd.allgather, tf.constant(mine)), everything),
        "grouped": close([g.numpy() for g in hvd.grouped_allgather([mine, mine])], everything),
        "exchanged": rows.numpy().tolist() == came.tolist() and received.numpy().tolist() == [r + RANK for r in RANKS],
        "scattered": close(both(hvd.reducescatter, tf.constant(tall[RANK])), tall.mean(0)[share]),
        "sums": close(both(lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.constant(tall[RANK])), tall.sum(0)[share]),
        "broadcast": close(both(lambda x: hvd.broadcast(x, 1), tf.constant(numbers(RANK))), ALL[1]),
        "variables": [v.numpy().tolist() for v in variables] == [SIZE - 1.0, [SIZE > 1]],
    }


def gradient(function: Any, x: tf.Tensor, factor: float) -> np.ndarray:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(function(x)) * factor
    return np.asarray(tape.gradient(loss, x))


@check
def gradients() -> dict[str, bool]:
    """Of the rank's result times its rank + 1, whose mean over the ranks is this."""
    x, factor = tf.ones([SIZE, 2]), RANK + 1.0
    mean = (SIZE + 1) / 2
    each = np.repeat(np.arange(SIZE) + 1.0, 2).reshape(SIZE, 2)
    return {
        "average": close([gradient(hvd.allreduce, x, factor)], np.full((SIZE, 2), mean)),
        "sum": close([gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), x, factor)], np.full((SIZE, 2), mean * SIZE)),
        "grouped": close([gradient(lambda x: hvd.grouped_allreduce([x, x])[1], x, factor)], np.full((SIZE, 2), mean)),
        "allgather": close([gradient(hvd.allgather, x, factor)], np.full((SIZE, 2), mean)),
        "broadcast": close([gradient(lambda x: hvd.broadcast(x, 0), x, factor)], np.full((SIZE, 2), mean * (RANK == 0))),
        "alltoall": close([gradient(hvd.alltoall, x, factor)], each),
        "reducescatter": close([gradient(hvd.reducescatter, x, factor)], each),
        "scattered sum": close([gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), x, factor)], each * SIZE),
    }


@check
def objects() -> list[Any]:
    text = {"rank": RANK, "weights": (np.arange(3), None)}
    got = hvd.broadcast_object(text if RANK == 1 else None, root_rank=1)
    each = hvd.allgather_object({"rank": RANK})
    refused = raised(hvd.broadcast_object, {1, 2}, 0)  # a set
    return [got["rank"], got["weights"][0].tolist(), [one["rank"] for one in each] == list(RANKS), refused]


@check
def process_sets() -> list[Any]:
    even = hvd.add_process_set(list(RANKS)[::2])
    twice = raised(hvd.add_process_set, list(RANKS)[::2])
    x = tf.constant([RANK + 1.0])
    if even.included():
        found = [
            hvd.allreduce(x, op=hvd.Sum, process_set=even).numpy().tolist() == [sum(range(1, SIZE + 1, 2))],
            hvd.allgather(x, process_set=even).numpy().tolist() == [r + 1.0 for r in RANKS[::2]],
            hvd.broadcast(x, 0, process_set=even).numpy().tolist() == [1.0],
            hvd.reducescatter(tf.ones([even.size()]), process_set=even).numpy().tolist() == [1.0],
            hvd.broadcast_object(RANK, 0, process_set=even) == 0,
        ]
    else:
        found = raised(hvd.allreduce, x, process_set=even)
    hvd.barrier()
    removed = hvd.remove_process_set(even)
    return [found, twice[0], removed, raised(hvd.allreduce, x, process_set=even)[0]]


def in_threads(*actions: Any) -> list[Any]:
    with ThreadPoolExecutor(len(actions)) as threads:
        return [future.result() for future in [threads.submit(action) for action in actions]]


@check
def orders() -> dict[str, Any]:
    """Threads whose calls come in another order on each rank; a barrier of the threads puts them all under way."""
    tensors = {f"t{i}": tf.fill([i + 1], float(RANK + i)) for i in range(4)}

    def reduce(name: str, start: threading.Barrier) -> float:
        start.wait()
        return float(hvd.allreduce(tensors[name], op=hvd.Sum, name=name)[0])

    def once(turn: int) -> bool:
        names = sorted(tensors)[(RANK + turn) % 4 :] + sorted(tensors)[: (RANK + turn) % 4]
        start = threading.Barrier(len(names))
        found = in_threads(*(lambda name=name: reduce(name, start) for name in names))
        return found == [sum(RANKS) + SIZE * float(name[1]) for name in names]

    def rows_and_sums() -> bool:
        calls = [lambda: hvd.allgather(tf.fill([RANK + 1], 1.0)), lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum)]
        first, second = in_threads(*(calls if RANK == 0 else calls[::-1]))
        gathered, summed = (first, second) if RANK == 0 else (second, first)
        return gathered.shape[0] == sum(range(1, SIZE + 1)) and summed.numpy().tolist() == [SIZE, SIZE]

    def one_after_another() -> list[Any]:
        """Rank 0 makes them one by one, the others at once."""
        calls = [lambda: float(hvd.allreduce(1.0, name="x")), lambda: float(hvd.allreduce(2.0, name="y"))]
        return [call() for call in calls] if RANK == 0 else in_threads(*calls[::-1])[::-1]

    return {
        "named": [once(turn) for turn in range(10)],
        "unnamed": rows_and_sums(),
        "one_by_one": [one_after_another() for _ in range(5)],
    }


@check
def same_name() -> list[str]:
    """On the last rank two threads use one name, while the other ranks come late."""
    found: list[str] = []
    if RANK == SIZE - 1:
        first = threading.Thread(target=lambda: hvd.allreduce(1.0, name="twice"))
        first.start()
        while not any(call.key == "allreduce of 'twice'" for q in negotiation._queues.values() for call in q._calls):
            time.sleep(0.001)
        found = raised(hvd.allreduce, 1.0, name="twice")
        Path(FOLDER, f"twice{SIZE}").touch()
        first.join()
    else:
        while not Path(FOLDER, f"twice{SIZE}").exists():
            time.sleep(0.001)
        hvd.allreduce(1.0, name="twice")
    return found


@check
def never_together() -> list[str]:
    """Other threads might call what is missing until the deadline."""
    stop = threading.Event()
    idle = threading.Thread(target=stop.wait)
    idle.start()
    timeout, settings.timeout = settings.timeout, lambda: 1.0
    found = raised(hvd.allreduce, 1.0, name="even" if RANK % 2 == 0 else "odd")
    settings.timeout = timeout
    stop.set()
    idle.join()
    return found


@check
def timeline() -> list[Any]:
    """What happens between start and stop, of all ranks in one file."""
    file = f"{FOLDER}/timeline.json"
    hvd.start_timeline(file, mark_cycles=True)
    twice = raised(hvd.start_timeline, file)
    with tf.GradientTape() as tape:
        weight = tf.Variable([2.0], name="weight")
        value = weight * weight
    hvd.DistributedGradientTape(tape).gradient(value, weight)
    hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.barrier()
    events = json.loads(Path(file).read_text())["traceEvents"]
    return [twice, sorted({event["pid"] for event in events if event["name"] == "reduce 0"})]


@check
def join() -> list[Any]:
    """Rank r has r + 1 batches; zeros stand for those of ranks that have joined."""
    sums = [float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) for _ in range(RANK + 1)]
    wrong = raised(hvd.allgather, tf.constant([1.0])) if RANK == SIZE - 1 else raised(hvd.join)
    return [sums == [float(SIZE - step) for step in range(RANK + 1)], wrong, int(hvd.join())]


@check
def refused() -> list[Any]:
    other = tf.zeros([2, 3] if RANK == 1 else [3, 2])
    found: list[Any] = [
        raised(hvd.allreduce, other, name="loss"),
        raised(hvd.allreduce, tf.zeros([2], tf.int32 if RANK == 1 else tf.float32)),
        raised(hvd.broadcast, tf.zeros([2]), RANK % 2),
        raised(hvd.broadcast, tf.zeros([2]), SIZE),
        raised(hvd.alltoall, tf.zeros([2]), [1] * SIZE + [1]),
        raised(hvd.grouped_allreduce, [other, tf.zeros([1])], name="two"),
        raised(hvd.allreduce, other, op=hvd.Adasum),
        raised(hvd.allreduce, tf.zeros([1]), average=True, op=hvd.Sum),
    ]
    try:
        hvd.allreduce(other)
    except HorovodInternalError as error:
        found.append(isinstance(error, tf.errors.FailedPreconditionError))
    try:
        tf.function(hvd.allreduce)(other)
    except tf.errors.FailedPreconditionError as error:
        found.append("while rank 0 calls all_reduce" in str(error))
    return [*found, raised(__import__, "horovod.torch")[0], float(hvd.allreduce(1.0))]


run(FOLDER, *sys.argv[2:])
