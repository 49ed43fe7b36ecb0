"""A bucket hook raises in the third step, or keeps its array: bucket_hook_fails.py FOLDER HOW WHO EAGER

WHO: the ranks that have the hook, as "1" or "01". Writes each rank's error to `RANK.json` in the folder.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

folder, how, who, eager = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "eager"
rank = tnt.get_rank()
kept = []
calls = []


def hook(bucket: tnt.PackedBucket) -> None:
    calls.append(time.monotonic())
    if len(calls) < 3:
        return
    if how == "keep":
        kept.append(bucket.data[:1])
    else:
        raise ValueError("the norm is not a number")


model = tnt.Model(
    keras.Sequential([keras.Input((4,)), layers.Dense(6, name="hidden"), layers.Dense(1)], name="model"),
    bucket_hook=hook if str(rank) in who else None,
)
model.compile("adam", "mse", run_eagerly=eager)
x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(10)
try:
    model.fit(dataset, epochs=3, verbose=0)
except tnt.TarantellaError as error:
    found = {
        "kind": type(error).__name__,
        "text": str(error),
        "cause": repr(error.__cause__),
        "seconds": time.monotonic() - calls[-1] if calls else None,
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    raise
