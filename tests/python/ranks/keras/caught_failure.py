"""Ranks fail in fit, and the script catches the error and goes on, as one does that searches for a batch size that fits.

caught_failure.py FOLDER HOW

Each rank writes to `RANK.json` in the folder what it caught: the kind of the error, its text, and after how many seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

folder, how = Path(sys.argv[1]), sys.argv[2]
rank = tnt.get_rank()
failing: set[str] = set()
x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)


class Fragile(layers.Layer):  # type: ignore[misc]
    """Fails when it is asked to, in the second micro-batch."""

    calls = 0

    def call(self, inputs: Any) -> Any:
        Fragile.calls += "the first stage" in failing
        if self.calls == 2:
            raise ValueError("the first stage does not like this micro-batch")
        return inputs + 0.0

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


def loss(y_true: Any, y_pred: Any) -> Any:
    if "python" in failing:
        raise ValueError("this batch is not good")
    if "operation" in failing:
        tf.debugging.assert_less(tf.reduce_sum(y_pred), -1e9, "these predictions are not good")
    return tf.reduce_mean(tf.square(y_true - y_pred), -1)


def new_model(is_pipeline: bool, eager: bool = False) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(5, "tanh"), Fragile(), layers.Dense(4), layers.Dense(1)])
    made = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, micro_batches=4) if is_pipeline else tnt.Model(model)
    made.compile("sgd", loss, run_eagerly=eager)
    return made


def caught(model: Any, method: str = "fit") -> dict[str, Any]:
    began = time.monotonic()
    try:
        getattr(model, method)(x, y, batch_size=8, verbose=0)
    except Exception as error:
        return {"kind": type(error).__name__, "text": str(error), "seconds": time.monotonic() - began}
    return {}


def all_fail_and_go_on() -> None:
    """Ranks that fail alike may go on, and train as if nothing had happened."""
    for is_pipeline in (False, True):
        expected = new_model(is_pipeline)
        expected.fit(x, y, batch_size=8, verbose=0)
        model = new_model(is_pipeline)
        failing.add("python")
        for method in ("fit",) if is_pipeline else ("fit", "evaluate"):  # the last stage alone evaluates a pipeline's loss
            error = caught(model, method)
            assert error["kind"] == "ValueError", error
        failing.clear()
        model.compile("sgd", loss)
        model.fit(x, y, batch_size=8, verbose=0)
        for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
        tnt.barrier()


result: dict[str, Any] = {}
if how == "all":
    all_fail_and_go_on()
elif how == "messages under way":
    pipeline = new_model(True, eager=True)
    pipeline.fit(x, y, batch_size=8, verbose=0)
    failing.add("the first stage" if rank == 0 else "python")
    first = caught(pipeline)
    failing.clear()
    Fragile.calls = 0
    assert first["kind"] == "ValueError", first
    result = caught(pipeline)
else:
    model = new_model("pipeline" in how)
    if rank == 1:
        failing.add("operation")
    result = caught(model, "evaluate" if "evaluate" in how else "fit")
(folder / f"{rank}.json").write_text(json.dumps(result))
