"""What `shard_optimizer=True` saves and costs: `tarantella -n 2 -- benchmarks/training/sharded_optimizer.py --width 768`.

A Transformer is trained by Adam, as an ordinary `tnt.Model` and with the optimizer's state spread over the ranks. The two take
turns, block by block, on all ranks at once. Reported are the bytes of the state on the rank that holds most, the memory that
each kind adds to a process (its resident set), and the median step of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import workloads
from keras import layers

import tarantella as tnt

WORDS = 8000


def transformer(width: int, blocks: int, words: int) -> Any:
    """A classifier of texts of so many words."""
    keras.utils.set_random_seed(workloads.SEED)
    inputs = keras.Input((words,), dtype="int32")
    x = layers.Embedding(WORDS, width)(inputs)
    x = layers.Dense(width)(x)  # the embedding's gradient by rows is not what is measured
    for _ in range(blocks):
        attention = layers.MultiHeadAttention(8, width // 8)(x, x)
        x = layers.LayerNormalization()(x + attention)
        hidden = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(width)(hidden))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def state_bytes(model: Any) -> int:
    """Of the optimizer's variables that this rank holds."""
    here = [v for v in model.optimizer.variables if getattr(v, "is_here", True)]
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in here)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--words", type=int, default=16, help="of each text")
    parser.add_argument("--batch", type=int, default=4, help="texts of all ranks in a step")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both kinds of steps")
    parser.add_argument("--steps", type=int, default=6, help="steps in a turn")
    parser.add_argument("--only", choices=("ordinary", "sharded"), help="one kind alone, where memory is short")
    parser.add_argument("--json", action="store_true", help="one line for a program")
    given = parser.parse_args()
    random = np.random.default_rng(workloads.SEED)
    x = random.integers(0, WORDS, size=(given.steps * given.batch, given.words)).astype(np.int32)
    y = random.integers(0, 10, size=len(x)).astype(np.int32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(given.batch, drop_remainder=True).cache()
    models: dict[str, Any] = {}
    timers = {name: workloads.step_timer(keras) for name in ("ordinary", "sharded") if given.only in (None, name)}
    own: dict[str, list[float]] = {}
    for turn in range(given.rounds + 1):
        for name, timer in timers.items():
            before = workloads.resident_mib()
            if turn == 0:
                models[name] = tnt.Model(transformer(given.width, given.blocks, given.words), shard_optimizer=name == "sharded")
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                models[name].compile(keras.optimizers.Adam(workloads.LEARNING_RATE), loss, jit_compile=False)
            tnt.barrier()
            models[name].fit(data, verbose=0, callbacks=[timer])
            if turn == 0:  # traces, connects, warms up
                timer.seconds.clear()
                own[name] = [state_bytes(models[name]), workloads.resident_mib() - before]
    result: dict[str, Any] = {"parameters": models[next(iter(models))].count_params(), "ranks": tnt.get_size()}
    for name, timer in timers.items():
        median = [workloads.median_ms(timer.seconds)] if timer.seconds else [0.0]
        state, resident, step = np.max(tnt.all_gather(np.array(own[name] + median)), axis=0)
        result |= {f"{name}_state_mb": round(state / 1e6, 1), f"{name}_resident_mb": round(resident, 0)}
        result[f"{name}_step_ms"] = round(step, 1)
    if tnt.is_master_rank():
        print(json.dumps(result) if given.json else "\n".join(f"{key:>22}  {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
