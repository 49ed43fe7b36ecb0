"""Trains models whose layers are made in one order and used in another, and notes each plan: arrival.py FOLDER."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

import tarantella as tnt

WIDTH = 16
x = np.random.default_rng(0).normal(size=(64, WIDTH)).astype(np.float32)


def hidden(name: str) -> Any:
    return layers.Dense(WIDTH, activation="tanh", name=name)


class Backwards(keras.Model):
    """Uses last what it makes first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(1, name="head")
        self.hidden = [hidden(f"hidden_{i}") for i in range(4)]
        self.frozen = layers.Dense(WIDTH, trainable=False, name="frozen")

    def call(self, x: Any) -> Any:
        for layer in reversed([*self.hidden, self.frozen]):
            x = layer(x)
        return self.head(x)


def functional() -> Any:
    head, first, second, side = layers.Dense(1, name="head"), hidden("first"), hidden("second"), hidden("side")
    inputs = keras.Input((WIDTH,))
    h = first(inputs)
    return keras.Model(inputs, head(layers.Concatenate()([second(first(h)), side(h)])))


def sequential() -> Any:
    return keras.Sequential([keras.Input((WIDTH,)), *[hidden(f"hidden_{i}") for i in range(3)], layers.Dense(1, name="head")])


def trained(make: Callable[[], Any], **options: Any) -> dict[str, Any]:
    accumulate = options.pop("accumulate", None)
    plain: list[np.ndarray] = []
    for strategy in (tnt.ParallelStrategy.NONE, tnt.ParallelStrategy.DATA):
        keras.utils.set_random_seed(1)
        built = make()
        built(x[:1])
        model = tnt.Model(built, strategy, fusion_threshold=0)
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulate)
        model.compile(optimizer, "mse", **options)
        if strategy == tnt.ParallelStrategy.DATA:
            before = [line.split()[-1] for line in tnt.plan(model)]
        history = model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0, shuffle=False)
        plain = plain or [*model.get_weights(), np.array(history.history["loss"])]
    mine = [*model.get_weights(), np.array(history.history["loss"])]
    return {
        "before": before,
        "after": [line.split()[-1] for line in tnt.plan(model)],
        "difference": max(float(np.abs(a - b).max() / max(1, np.abs(b).max())) for a, b in zip(mine, plain, strict=True)),
        "weights": hashlib.sha256(b"".join(w.tobytes() for w in mine)).hexdigest(),
    }


found = {
    "subclassed": trained(Backwards),
    "several steps": trained(Backwards, steps_per_execution=3),
    "accumulating": trained(Backwards, accumulate=2),
    "eager": trained(Backwards, run_eagerly=True),
    "functional": trained(functional),
    "sequential": trained(sequential),
}
Path(sys.argv[1], f"{tnt.get_rank()}.json").write_text(json.dumps(found))
