"""How long a training step takes, in one process or on the ranks of a job. exposed.py and throughput.py start it.

    python benchmarks/training/step_times.py --model cnn --core 0            plain Keras, here on one core
    tarantella -n 2 -- benchmarks/training/step_times.py --model cnn --ranks a tnt.Model, in turn with plain Keras

With `--ranks`, each rank trains blocks of steps of a `tnt.Model` in turn with blocks of the same model in plain Keras, on the
same micro-batches and with nothing exchanged. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import workloads


def alone(model: str, batch: int, rounds: int, steps: int, jit: bool) -> dict[str, float]:
    """Plain Keras on the whole batch. Tarantella is not imported."""
    import keras

    plain = workloads.compiled(keras, workloads.build(keras, model), jit)
    data = _dataset(*workloads.samples(plain, steps * batch), batch)
    timer = workloads.step_timer(keras)
    for turn in range(rounds + 1):
        plain.fit(data, verbose=0, shuffle=False, callbacks=[timer])
        if turn == 0:  # traces, warms up
            timer.seconds.clear()
    return {"step_ms": workloads.median_ms(timer.seconds), "memory_mib": workloads.peak_mib()}


def on_ranks(model: str, batch: int, rounds: int, steps: int, jit: bool) -> dict[str, float] | None:
    """The medians of the slowest rank, on the master; None on all others."""
    import keras

    import tarantella as tnt

    strategies = (tnt.ParallelStrategy.DATA, tnt.ParallelStrategy.NONE)
    ours, plain = (workloads.compiled(keras, tnt.Model(workloads.build(keras, model), how), jit) for how in strategies)
    ranks, rank = tnt.get_size(), tnt.get_rank()
    x, y = workloads.samples(plain, steps * batch)
    whole, part = _dataset(x, y, batch), _dataset(x[rank::ranks], y[rank::ranks], batch // ranks)
    with_communication, without = workloads.step_timer(keras), workloads.step_timer(keras)
    before: dict[str, float] = {}
    memory = 0.0
    for turn in range(rounds + 1):
        tnt.barrier()
        ours.fit(whole, verbose=0, shuffle=False, callbacks=[with_communication])
        memory = memory or workloads.peak_mib()  # before plain Keras needs some
        tnt.barrier()
        plain.fit(part, verbose=0, shuffle=False, callbacks=[without])
        if turn == 0:  # traces, connects, warms up
            with_communication.seconds.clear()
            without.seconds.clear()
            before = ours.stats()
    stats = {key: value - before[key] for key, value in ours.stats().items()}
    a_step = 1e3 / max(stats["steps"], 1)
    found = {
        "step_ms": workloads.median_ms(with_communication.seconds),
        "step_ms_without_communication": workloads.median_ms(without.seconds),
        "reducer_busy_ms": stats["busy_seconds"] * a_step,
        "reducer_exposed_ms": stats["exposed_seconds"] * a_step,
        "memory_mib": memory,
    }
    slowest = tnt.all_gather(list(found.values())).max(axis=0)
    return {"ranks": ranks, **dict(zip(found, map(float, slowest), strict=True))} if tnt.is_master_rank() else None


def _dataset(x: Any, y: Any, batch: int) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).cache().prefetch(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, required=True)
    parser.add_argument("--batch", type=int, default=workloads.GLOBAL_BATCH, help="samples of a step; of all ranks")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of steps, after one that warms up")
    parser.add_argument("--steps", type=int, default=30, help="steps in a block")
    parser.add_argument("--jit", action="store_true", help="jit_compile=True")
    parser.add_argument("--core", type=int, help="use this core only")
    parser.add_argument("--ranks", action="store_true", help="on the ranks of a job")
    given = parser.parse_args()
    workloads.check_steps(parser, given.steps)
    if given.core is not None:
        os.sched_setaffinity(0, [given.core])  # before TensorFlow counts cores
    measure = on_ranks if given.ranks else alone
    found = measure(given.model, given.batch, given.rounds, given.steps, given.jit)
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
