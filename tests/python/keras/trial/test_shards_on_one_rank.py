"""One rank tries losses, too, where it computes a batch shard by shard."""

from __future__ import annotations

import json

from support.launch import run_alone

SCRIPT = """
import json
import numpy as np
import tensorflow as tf
from tensorflow import keras
import tarantella as tnt

x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
found = []
for options in ({"parallel_strategy": tnt.ParallelStrategy.NONE}, {"reproducible": 4}):
    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), **options)
    model.compile(keras.optimizers.SGD(0.01), lambda y, found: tf.reduce_sum(tf.square(y - found)))
    found.append(model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"])
print(json.dumps(found))
"""


def test_a_sum_is_summed_over_shards():
    plain, in_shards = json.loads(run_alone(SCRIPT, timeout=60).good().stdout.splitlines()[-1])
    assert all(abs(ours - truth) < 1e-5 * truth for ours, truth in zip(in_shards, plain, strict=True))
