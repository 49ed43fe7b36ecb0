"""The endpoint layer: a layer that has the labels as an input, adds the loss and keeps a metric; `compile` gets no loss."""

from __future__ import annotations

from typing import Any

from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes, numbers


class LogisticEndpoint(layers.Layer):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, logits: Any, targets: Any = None, sample_weight: Any = None) -> Any:
        if targets is not None:
            self.add_loss(self.loss_fn(targets, logits, sample_weight))
            self.accuracy.update_state(targets, logits, sample_weight)
        return keras.activations.sigmoid(logits)


def train(wrap: Wrap) -> Trained:
    data = {"inputs": numbers(0, SAMPLES, 3), "targets": classes(1, 2, SAMPLES, 4).astype("float32")}
    inputs, targets = keras.Input((3,), name="inputs"), keras.Input((4,), name="targets")
    predictions = LogisticEndpoint(name="predictions")(layers.Dense(4)(inputs), targets)
    model = wrap(keras.Model([inputs, targets], predictions))
    model.compile(optimizer="adam")
    history = model.fit(data, batch_size=BATCH, epochs=2, verbose=0).history
    return model, {**history, "chances": model.predict(data, verbose=0)}


if __name__ == "__main__":
    as_script(train)
