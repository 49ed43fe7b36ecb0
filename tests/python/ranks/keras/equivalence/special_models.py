"""Runs that differ in the model: its layers, its outputs, its own training step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, optimizers

import recipes
from recipes import SAMPLES, batched, mlp, mlp_data
from special import BATCH, case, train_mlp
from training import Job, Outcome


@case
def regularizers(job: Job) -> Outcome:
    """Of weights, whose part of the loss is no rank's alone, and of outputs, whose part is a mean over samples."""
    weights = {"kernel_regularizer": keras.regularizers.L2(0.1), "bias_regularizer": "l1"}
    return train_mlp(job, model=mlp(**weights, activity_regularizer=keras.regularizers.L2(0.01)))[1]


class WithUnused(layers.Layer):
    """Has a variable of which the loss does not depend."""

    def build(self, shape: Any) -> None:
        self.used = self.add_weight(shape=(shape[-1],), initializer="ones", name="used")
        self.unused = self.add_weight(shape=(3,), initializer="ones", name="unused")

    def call(self, x: Any) -> Any:
        return x * self.used


@case
def unused_variable(job: Job) -> Outcome:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(6), WithUnused(), layers.Dense(3)])
    return train_mlp(job, model=model)[1]


class Subclassed(keras.Model):
    """Has no variables before it has seen a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(16, activation="tanh")
        self.out = layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))


@case
def subclassed(job: Job) -> Outcome:
    model, outcome = train_mlp(job, model=Subclassed())
    outcome.add("evaluate", model.evaluate(batched(mlp_data(), BATCH), verbose=0))
    return outcome


class OwnTrainStep(Subclassed):
    """As Keras' guide writes it."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=tf.shape(x)[0])
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


@case
def own_train_step(job: Job) -> Outcome:
    return train_mlp(job, model=OwnTrainStep())[1]


class OwnLogs(Subclassed):
    """Metrics of its own, shown under other names, and numbers that are no metric."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = keras.metrics.Mean(name="tracker")

    def step(self, data: Any, training: bool) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=training)))
        if training:
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(tf.reduce_sum(x, 1))
        return {"shown": self.tracker.result(), "now": loss, "more": {"mean": tf.reduce_mean(y, 0)}}

    def train_step(self, data: Any) -> Any:
        return self.step(data, training=True)

    def test_step(self, data: Any) -> Any:
        return self.step(data, training=False)


class OwnTracker(Subclassed):
    """Keeps its loss as a mean over batches, which may differ in size."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = keras.metrics.Mean(name="tracker")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data: Any) -> Any:
        x, y = data
        self.tracker.update_state(tf.reduce_mean(tf.square(y - self(x, training=False))))
        return {"loss": self.tracker.result()}


@case
def own_tracker(job: Job) -> Outcome:
    model = job.wrap(OwnTracker())
    model.compile(optimizer=optimizers.SGD(0.05))
    outcome = Outcome()
    data = batched(mlp_data(), BATCH)
    history = model.fit(data, epochs=2, verbose=0, validation_data=data).history
    outcome.add("logs", {key: np.array(values) for key, values in history.items()})
    outcome.add("weights", [np.asarray(v) for v in model.trainable_variables])
    return outcome


@case
def added_loss(job: Job) -> Outcome:
    """Of legacy Keras' functional models: a loss and a metric that are tensors of the model, and no labels."""
    inputs = keras.Input((8,))
    outputs = layers.Dense(3, activation="tanh")(inputs)
    model = keras.Model(inputs, outputs)
    model.add_loss(tf.reduce_mean(tf.square(outputs - 0.5)))
    model.add_metric(tf.reduce_mean(outputs), name="of_outputs")
    data = {"x": mlp_data()[0], "batch_size": BATCH, "shuffle": False}
    return job.train(model, data, optimizer=optimizers.SGD(0.05), loss=None)[1]


class Logs(keras.callbacks.Callback):
    """Keeps what every step shows."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append([float(logs["shown"]), float(logs["now"]), *np.asarray(logs.get("more", logs)["mean"]).tolist()])


@case
def own_logs(job: Job) -> Outcome:
    logs = Logs()
    model = job.wrap(OwnLogs())
    model.compile(optimizer=optimizers.SGD(0.05))
    data = batched(mlp_data(), BATCH)
    model.fit(data, epochs=3, verbose=0, callbacks=[logs])
    outcome = Outcome()
    outcome.add("steps", np.array(logs.steps))
    outcome.add("weights", [np.asarray(v) for v in model.trainable_variables])
    ended = model.evaluate(data, verbose=0, return_dict=True)
    outcome.add("evaluate", [float(ended["shown"]), float(ended["now"])])
    return outcome


@case
def text_input(job: Job) -> Outcome:
    words = np.array([f"w{i}" for i in range(20)])
    x = words[recipes.random().integers(0, 20, (SAMPLES, 4))]
    lookup = layers.StringLookup(vocabulary=list(words))
    data = batched((x, mlp_data()[1]), BATCH).map(lambda text, y: (lookup(text), y))
    model = keras.Sequential([keras.Input((4,), dtype="int64"), layers.Embedding(22, 4), layers.Flatten(), layers.Dense(3)])
    return train_mlp(job, model=model, data=data, optimizer=optimizers.SGD(0.05, momentum=0.9))[1]


class Merging(optimizers.Adam):
    """Adds up the slices of a sparse gradient that belong to one row before it squares them."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply([tf.convert_to_tensor(g) for g in grads], trainable_variables)


@case
def embedding_with_repeated_ids(job: Job) -> Outcome:
    x, y = recipes.embedding_data()
    return job.train(
        recipes.embedding(), batched((x % 20, y), BATCH), optimizer=Merging(2e-3), loss="binary_crossentropy", by_step=True
    )[1]


@case
def large_embedding(job: Job) -> Outcome:
    """Its gradient is reduced by rows; no id twice, see `recipes.embedding_data`."""
    x, y = recipes.embedding_data()
    return job.train(
        recipes.embedding(rows=50_000), batched((x, y), BATCH), optimizer=optimizers.Adam(2e-3), loss="binary_crossentropy"
    )[1]


@case
def large_embedding_with_repeated_ids(job: Job) -> Outcome:
    x, y = recipes.embedding_data()
    model = recipes.embedding(rows=50_000)
    return job.train(model, batched((x % 20, y), BATCH), optimizer=Merging(2e-3), loss="binary_crossentropy", by_step=True)[1]


@case
def embedding_alone(job: Job) -> Outcome:
    """Every gradient is sparse, and momentum needs each row once."""
    x, y = recipes.embedding_data()
    table = layers.Embedding(50_000, 4, embeddings_initializer=keras.initializers.RandomUniform(-1, 1))
    model = keras.Sequential([keras.Input((6,), dtype="int32"), table, layers.Flatten()])
    y = np.repeat(y, 24, 1)
    return job.train(model, batched((x % 20, y), 63), optimizer=optimizers.SGD(0.1, momentum=0.9), loss="mse")[1]


@case
def large_embedding_with_loss_scale(job: Job) -> Outcome:
    """No id twice: Keras takes the norm of a sparse gradient before it adds up the slices of one row."""
    x, y = recipes.embedding_data()
    optimizer = keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.1, global_clipnorm=0.01), initial_scale=64.0)
    model = recipes.embedding(rows=50_000)
    return job.train(model, batched((x, y), BATCH), optimizer=optimizer, loss="binary_crossentropy")[1]


@case
def recurrent(job: Job) -> Outcome:
    x, y = mlp_data()
    model = keras.Sequential([keras.Input((4, 2)), layers.LSTM(6), layers.Dense(3)])
    return train_mlp(job, model=model, data=batched((x.reshape(-1, 4, 2), y), BATCH))[1]
