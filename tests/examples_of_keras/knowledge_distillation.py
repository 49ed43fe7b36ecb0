"""Knowledge distillation: a trained teacher, and a loss of the model's own out of two losses given to `compile`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, LEGACY, SAMPLES, Trained, Wrap, as_script, classes, pixels, update


class Distiller(keras.Model):
    def __init__(self, student: keras.Model, teacher: keras.Model) -> None:
        super().__init__()
        self.student, self.teacher = student, teacher

    def compile(self, student_loss: Any, distillation_loss: Any, alpha: float, temperature: float, **kwargs: Any) -> None:
        super().compile(**kwargs)
        self.student_loss, self.distillation_loss = student_loss, distillation_loss
        self.alpha, self.temperature = alpha, temperature

    def call(self, x: Any) -> Any:
        return self.student(x)

    def both(self, x: Any, y: Any, found: Any) -> Any:
        soft = [tf.nn.softmax(logits / self.temperature) for logits in (self.teacher(x, training=False), found)]
        distilled = self.distillation_loss(*soft) * self.temperature**2
        return self.alpha * self.student_loss(y, found) + (1.0 - self.alpha) * distilled


class DistillerWithLoss(Distiller):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        return self.both(x, y, y_pred)


class DistillerWithSteps(Distiller):
    """As it was written for legacy Keras."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            found = self.student(x, training=True)
            loss = self.both(x, y, found)
        update(self.optimizer, tape, loss, self.student.trainable_variables)
        self.compiled_metrics.update_state(y, found)
        return {**{m.name: m.result() for m in self.metrics}, "distillation_loss": loss}

    def test_step(self, data: Any) -> Any:
        x, y = data
        found = self.student(x, training=False)
        self.compiled_metrics.update_state(y, found)
        return {**{m.name: m.result() for m in self.metrics}, "student_loss": self.student_loss(y, found)}


def network(filters: int, name: str) -> keras.Model:
    begin = [keras.Input((8, 8, 1)), layers.Conv2D(filters, 3, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    return keras.Sequential([*begin, layers.Flatten(), layers.Dense(5)], name=name)


def train(wrap: Wrap) -> Trained:
    x, y = pixels(0, SAMPLES, 8, 8, 1), classes(1, 5, SAMPLES)
    student, teacher = network(3, "student"), network(6, "teacher")
    student_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    given = {"optimizer": keras.optimizers.Adam(1e-3), "metrics": [keras.metrics.SparseCategoricalAccuracy()]}
    teaching = wrap(teacher)
    teaching.compile(loss=student_loss, **given)
    taught = teaching.fit(x, y, batch_size=BATCH, verbose=0).history
    model = wrap((DistillerWithSteps if LEGACY else DistillerWithLoss)(student, teacher))
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss=student_loss,
        distillation_loss=keras.losses.KLDivergence(),
        alpha=0.1,
        temperature=10,
    )
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    return model, {**history, "teacher": taught["loss"], "test": model.evaluate(x, y, batch_size=BATCH, verbose=0)}


if __name__ == "__main__":
    as_script(train)
