"""The trainer pattern: a model around a model, with steps of its own that use what `compile` was given."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, LEGACY, SAMPLES, Trained, Wrap, as_script, classes, pixels, update


class Trainer(keras.Model):
    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.model = model
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.own_accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker, self.own_accuracy]

    def call(self, x: Any) -> Any:
        return self.model(x)

    def seen(self, y: Any, found: Any, loss: Any) -> Any:
        self.loss_tracker.update_state(loss)
        self.own_accuracy.update_state(y, found)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            found = self.model(x, training=True)
            loss = self.loss_fn(y, found) + sum(self.model.losses)
        update(self.optimizer, tape, loss, self.trainable_weights)
        return self.seen(y, found, loss)

    def test_step(self, data: Any) -> Any:
        x, y = data
        found = self.model(x, training=False)
        return self.seen(y, found, self.loss_fn(y, found))


def train(wrap: Wrap) -> Trained:
    x, y = pixels(0, SAMPLES, 6, 6), classes(1, 4, SAMPLES)
    lower = [keras.Input((6, 6)), layers.Flatten(), layers.Dense(8, activation="relu", kernel_regularizer="l2")]
    trainer = wrap(Trainer(keras.Sequential([*lower, layers.Dense(4, kernel_regularizer=keras.regularizers.L1(1e-3))])))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, **({} if LEGACY else {"gradient_accumulation_steps": 2}))
    trainer.compile(optimizer=optimizer)
    history = trainer.fit(x, y, epochs=2, batch_size=BATCH, validation_data=(x, y), verbose=0).history
    return trainer, {**history, "test": trainer.evaluate(x, y, batch_size=BATCH, verbose=0)}


if __name__ == "__main__":
    as_script(train)
