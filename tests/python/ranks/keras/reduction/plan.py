"""Trains the same model with several fusion thresholds and notes each plan and the weights' hash: plan.py FOLDER."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

import tarantella as tnt

x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)


def made(threshold: float | None) -> object:
    keras.utils.set_random_seed(1)
    hidden = [layers.Dense(128, activation="tanh", name=f"hidden_{i}") for i in range(4)]
    model = tnt.Model(keras.Sequential([keras.Input((32,)), *hidden, layers.Dense(1)]), fusion_threshold=threshold)
    model.compile("sgd", "mse")
    return model


found = {}
for name, threshold in {"own": None, "none": 0, "some": 100_000, "one": math.inf}.items():
    model = made(threshold)
    before = list(tnt.plan(model))
    model.fit(x, x.sum(1, keepdims=True), batch_size=32, epochs=1, verbose=0)
    weights = b"".join(w.tobytes() for w in model.get_weights())
    found[name] = {"before": before, "after": list(tnt.plan(model)), "weights": hashlib.sha256(weights).hexdigest()}
errors = []
for wrong in (-1, "4M", math.nan):
    try:
        made(wrong)
    except tnt.InvalidArgumentError as error:
        errors.append(str(error))
try:
    tnt.plan(model.model)
except TypeError as error:
    errors.append(str(error))
found["errors"] = errors
Path(sys.argv[1], f"{tnt.get_rank()}.json").write_text(json.dumps(found))
