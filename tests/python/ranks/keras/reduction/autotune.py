"""Trains models with or without TNT_FUSION_THRESHOLD=autotune, and notes what came of each: autotune.py FOLDER."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from tarantella.environment import host_cache_file
from tarantella.keras.reduction import autotune

WIDTH, DEPTH, BATCHES = 192, 5, 8
x = np.random.default_rng(0).normal(size=(16 * BATCHES, WIDTH)).astype(np.float32)


class Noise(layers.Layer):
    """Draws from a state that each traced step has for itself."""

    def call(self, x: Any, training: bool = False) -> Any:
        return x + tf.random.normal(tf.shape(x), stddev=0.01) if training else x


def model(*extra: Any, width: int = WIDTH, threshold: float | None = None, hook: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(1)
    accumulate = options.pop("accumulate", None)
    hidden = [layers.Dense(width, activation="tanh") for _ in range(DEPTH)]
    plain = keras.Sequential([keras.Input((WIDTH,)), *hidden, *extra, layers.Dense(1)])
    built = tnt.Model(plain, fusion_threshold=threshold, bucket_hook=hook)
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9, gradient_accumulation_steps=accumulate)
    built.compile(optimizer, "mse", **options)
    return built


def fitted(model: Any, *epochs: int, **how: Any) -> dict[str, Any]:
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16)
    logs = [model.fit(data, epochs=n, verbose=0, **how).history for n in epochs]
    hooks = model._tnt.hooks
    state = [*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)]
    text = b"".join(a.tobytes() for a in state) + json.dumps(logs).encode()
    threshold = hooks.reducers.fusion_threshold
    return {
        "threshold": str(threshold if threshold is None or math.isinf(threshold) else int(threshold)),
        "state": hashlib.sha256(text).hexdigest(),
        "plan": list(tnt.plan(model)),
        "reducers": [r.name for r in hooks.reducers].count("gradients"),
        "tuning": hooks.autotune is not None and not hooks.autotune.finished,
        "steps": model.stats()["steps"],
    }


def kept() -> Any:
    file = host_cache_file("autotune")
    return json.loads(file.read_text()) if file is not None and file.exists() else None


found: dict[str, Any] = {}
found["two fits"] = fitted(model(), 3, 2, validation_data=(x, x[:, :1]))
found["kept"] = kept()
found["taken"] = fitted(model(), 1)
found["given"] = fitted(model(threshold=math.inf), 1)
found["hooked"] = fitted(model(hook=(lambda bucket: None) if tnt.is_master_rank() else None), 1)
found["several steps"] = fitted(model(layers.Dropout(0.5), layers.BatchNormalization(), width=144, steps_per_execution=3), 12)
found["accumulating"] = fitted(model(width=156, accumulate=2), 9)
found["eager"] = fitted(model(width=168, run_eagerly=True), 5)
found["too few"] = fitted(model(width=180), 1)
found["random"] = fitted(model(Noise(), width=200), 2)
found["small"] = fitted(model(width=2), 1)
file = host_cache_file("autotune")
if tnt.is_master_rank() and found["kept"] is not None:
    file.write_text('{"schema": 1, "entries": [{"model": 3}]}')
tnt.barrier()
found["damaged"] = fitted(model(), 5)
found["kept anew"] = kept()
found["best"] = [autotune.best(each) for each in ([3, 2, 4, 1], [1, 0.99, 2], [1, 2])]
Path(sys.argv[1], f"{tnt.get_rank()}.json").write_text(json.dumps(found))
