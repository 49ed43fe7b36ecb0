"""What the same bits on any number of ranks cost: `tarantella -n 2 -- benchmarks/training/reproducible_cost.py --model cnn`.

The same model is trained as a `tnt.Model`, as `tnt.Model(model, reproducible=V)`, and as a plain Keras model that each rank
trains by itself on its part of the batch; they take turns, block by block, on all ranks at once and under the same settings
(TensorFlow's deterministic operations are on for all three). Reported are the median steps of the slowest rank, and how long
the first turn took, in which steps are traced.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import keras
import tensorflow as tf
import workloads

import tarantella as tnt


def dataset(x: Any, y: Any, batch: int) -> tf.data.Dataset:
    """Batches of one static size."""
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).cache().prefetch(2)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, required=True)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--samples", type=int, default=32, help="of each shard in a step")
    parser.add_argument("--rounds", type=int, default=5, help="turns of all kinds of steps")
    parser.add_argument("--steps", type=int, default=12, help="steps in a turn")
    parser.add_argument("--optimizer", choices=("SGD", "Adam"), default="SGD")
    parser.add_argument("--json", action="store_true", help="one line for a program")
    given = parser.parse_args()
    batch, ranks, rank = given.shards * given.samples, tnt.get_size(), tnt.get_rank()
    models = {
        "ordinary": tnt.Model(workloads.build(keras, given.model)),
        "reproducible": tnt.Model(workloads.build(keras, given.model), reproducible=given.shards),
        "alone": tnt.Model(workloads.build(keras, given.model), tnt.ParallelStrategy.NONE),
    }
    x, y = workloads.samples(models["alone"], given.steps * batch)
    whole, part = dataset(x, y, batch), dataset(x[rank::ranks], y[rank::ranks], batch // ranks)
    timers = {name: workloads.step_timer(keras) for name in models}
    optimizer, first_s = getattr(keras.optimizers, given.optimizer), {}
    for model in models.values():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer(workloads.LEARNING_RATE), loss=loss, jit_compile=False)
    for turn in range(given.rounds + 1):
        for name, model in models.items():
            tnt.barrier()
            begin = time.perf_counter()
            model.fit(part if name == "alone" else whole, verbose=0, callbacks=[timers[name]])
            if turn == 0:  # traces, connects, warms up
                timers[name].seconds.clear()
                first_s[name] = time.perf_counter() - begin
    own = [workloads.median_ms(timer.seconds) for timer in timers.values()]
    step_ms = dict(zip(timers, tnt.all_gather(own).max(axis=0).tolist(), strict=True))
    result = {"model": given.model, "ranks": ranks, "shards": given.shards, "samples_per_shard": given.samples}
    result |= {f"{name}_ms": round(ms, 3) for name, ms in step_ms.items()}
    result |= {f"{name}_first_s": round(seconds, 1) for name, seconds in first_s.items()}
    result["cost_percent"] = round((step_ms["reproducible"] / step_ms["ordinary"] - 1) * 100, 1)
    if tnt.is_master_rank():
        print(json.dumps(result) if given.json else "\n".join(f"{key:>20}  {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
