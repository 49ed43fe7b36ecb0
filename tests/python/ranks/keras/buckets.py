"""Trains a model of several buckets for some epochs of two batches. Large batches make layers slow enough to see overlap.

buckets.py FOLDER BATCH EPOCHS [jit]
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

folder, batch, epochs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(2 * batch, 64)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(batch)
hidden = [layers.Dense(320, activation="tanh") for _ in range(6)]
model = tnt.Model(keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(1)]))
model.compile("sgd", "mse", jit_compile=sys.argv[4:] == ["jit"])
model.fit(dataset, epochs=epochs, verbose=0)
reducer = next(reducer for reducer in model._tnt.hooks.reducers if reducer.name == "gradients")
weights = b"".join(w.tobytes() for w in model.get_weights())
found = {"buckets": reducer.buckets, "weights": hashlib.sha256(weights).hexdigest()}
Path(folder, f"{tnt.get_rank()}.json").write_text(json.dumps(found))
