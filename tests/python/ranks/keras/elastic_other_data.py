"""elastic_other_data.py FOLDER [lost]: `evaluate`, `predict` and `fit` in callbacks of `fit`, compared with plain Keras.

A callback also freezes a layer, of which Keras takes no notice before the next `compile`.

lost: rank 1 is lost in such an evaluation, rank 0 in a prediction, and rank 2 in the training of another model.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt

numbers = np.random.default_rng(0)
X, OTHER = (numbers.normal(size=(rows, 4)).astype(np.float32) for rows in (96, 70))
Y, OTHER_Y = X.sum(1, keepdims=True), 3 + OTHER.sum(1, keepdims=True)


class Loss(keras.callbacks.Callback):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if os.environ["TNT_INTERNAL_ELASTIC"] == str(self.rank) and epoch_begun == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    on_predict_batch_end = on_train_batch_end = on_test_batch_end


class Counting(keras.layers.Layer):
    """Keeps the sum of what it has seen, in inference as well."""

    def build(self, shape: Any) -> None:
        self.sum = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.sum.assign(self.sum + keras.ops.sum(keras.ops.abs(inputs)))
        return inputs


class Evaluation(keras.callbacks.Callback):
    """Evaluates and predicts before the first validation, and later, with the model that is trained and with another one.

    It trains this other one, too, and freezes the first layer of the one that is trained.
    """

    def __init__(self, other: Any) -> None:
        super().__init__()
        self.other = other
        self.found: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        global epoch_begun
        epoch_begun = epoch
        losses = [[Loss(rank)] if "lost" in sys.argv and isinstance(trained, tnt.Model) else None for rank in (1, 0)]
        self.found.append(float(trained.evaluate(OTHER, OTHER_Y, batch_size=32, verbose=0, callbacks=losses[0])))
        self.found.append(float(np.sum(trained.predict(OTHER, batch_size=32, verbose=0, callbacks=losses[1]))))
        self.found.append(float(self.other.evaluate(OTHER, OTHER_Y, batch_size=32, verbose=0)))
        self.found.append(float(np.sum(self.other.predict(OTHER, batch_size=32, verbose=0))))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            losses = [Loss(2)] if "lost" in sys.argv and isinstance(trained, tnt.Model) else []
            options: dict[str, Any] = {"epochs": 1, "shuffle": False, "verbose": 0, "callbacks": losses}
            self.found += self.other.fit(OTHER, OTHER_Y, batch_size=32, **options).history["loss"]
            self.model.layers[0].trainable = False


class WithOwnEvaluate(keras.Sequential):
    def evaluate(self, x: Any = None, y: Any = None, **options: Any) -> Any:
        return super().evaluate(OTHER, OTHER_Y, **{**options, "batch_size": 32})


def found(kind: Any, wrap: Any) -> list[float]:
    global trained
    keras.utils.set_random_seed(1)
    trained, other = (
        wrap(kind([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1), *kept]))
        for kept in ([Counting()], [])
    )
    for model in (trained, other):
        model.compile(keras.optimizers.SGD(0.05), "mse")
    evaluation = Evaluation(other)
    history = trained.fit(
        X, Y, batch_size=24, epochs=2, shuffle=False, verbose=0, validation_data=(X[:48], Y[:48]), callbacks=[evaluation]
    ).history
    counted = float(trained.layers[-1].sum.numpy())
    return [*evaluation.found, *history["loss"], *history["val_loss"], counted]


kinds = (keras.Sequential,) if "lost" in sys.argv else (keras.Sequential, WithOwnEvaluate)  # later, one rank would be alone
result = [[found(kind, wrap) for wrap in (tnt.Model, lambda model: model)] for kind in kinds]
Path(sys.argv[1], f"{tnt.get_rank()}.json").write_text(json.dumps(result))
