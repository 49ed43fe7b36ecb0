"""What the first batch hides, what a step gives its losses, and what is left in Python: plain Keras' numbers, or a refusal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
RANK = tnt.get_rank()
SAMPLES, BATCH = 30, 8
numbers = np.random.default_rng(0)
x = numbers.normal(size=(SAMPLES, 6)).astype(np.float32)
y = (x[:, :1] > 0.5).astype(np.float32)
messages = log_messages()


def trained(make: Callable[[], Any], targets: Any = y, is_plain: bool = False, callbacks: Any = (), **compiled: Any) -> Any:
    """The weights and the losses of a model."""
    keras.backend.clear_session()  # names of layers begin anew: rank 0 makes more models than others
    keras.utils.set_random_seed(7)
    net = make()
    model = net if is_plain else tnt.Model(net)
    own = {name: value() if name == "optimizer" else value for name, value in compiled.items()}
    model.compile(**{"optimizer": keras.optimizers.SGD(0.3), "loss": "mse", **own})
    history = model.fit(
        x, targets, batch_size=BATCH, epochs=3, shuffle=False, verbose=0, callbacks=[one() for one in callbacks]
    )
    return [np.asarray(w).ravel().tolist() for w in net.get_weights()], history.history["loss"]


def both(make: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
    """What ranks have trained, and, on rank 0, what plain Keras does."""
    ours = trained(make, *args, **kwargs)
    return ours, trained(make, *args, is_plain=True, **kwargs) if RANK == 0 else None


def model_of(kind: type[keras.Model] = keras.Model, *middle: Any) -> Callable[[], Any]:
    def make() -> Any:
        inputs = keras.Input((6,))
        hidden = layers.Dense(4, activation="tanh")(inputs)
        for layer in middle:
            hidden = layer()(hidden)
        return kind(inputs, layers.Dense(1, activation="sigmoid")(hidden))

    return make


# ------------------------------------------------------------------------------------------ what a step gives its losses


class Balanced(keras.Model):
    """Weighs the samples by how often their class is in the batch."""

    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        part = tf.reduce_mean(targets)
        weights = tf.where(targets[:, 0] > 0.5, 0.5 / (part + 1e-3), 0.5 / (1.0 - part + 1e-3))
        return super().train_step((inputs, targets, weights))


class Mixed(keras.Model):
    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        return super().train_step((0.7 * inputs + 0.3 * inputs[::-1], 0.7 * targets + 0.3 * targets[::-1]))


def largest(wanted: Any, found: Any) -> Any:
    return tf.reduce_max(tf.abs(wanted - found))


class Extended(keras.Model):
    """Adds a term to the loss."""

    def term(self, found: Any) -> Any:
        return tf.math.reduce_std(found)

    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        with tf.GradientTape() as tape:
            found = self(inputs, training=True)
            loss = self.loss_of(inputs, targets, found) + 0.1 * self.term(found)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}

    def loss_of(self, inputs: Any, targets: Any, found: Any) -> Any:
        return self.compiled_loss(targets, found) if LEGACY else self.compute_loss(inputs, targets, found)


class ExtendedByMean(Extended):
    def term(self, found: Any) -> Any:
        return tf.reduce_mean(found**2)


@check
def given_to_losses() -> Any:
    refused = {
        "mixed": raised(trained, model_of(Mixed)),
        "more than the loss": raised(trained, model_of(Extended), loss=largest),
    }
    return both(model_of(Balanced)), both(model_of(ExtendedByMean), loss=largest), refused


# ------------------------------------------------------------------------------------------ what the first batch hides


def focal(wanted: Any, found: Any) -> Any:
    each = -wanted * tf.math.log(found + 1e-6) - (1 - wanted) * found**2 * tf.math.log(1 - found + 1e-6)
    return tf.reduce_sum(each) / tf.maximum(tf.reduce_sum(wanted), 1.0)


def of_labelled(mark: float) -> Any:
    def loss(wanted: Any, found: Any) -> Any:
        is_labelled = tf.math.is_finite(wanted) if np.isnan(mark) else wanted != mark
        each = tf.where(is_labelled, (tf.where(is_labelled, wanted, 0.0) - found) ** 2, 0.0)
        return tf.reduce_sum(each) / tf.reduce_sum(tf.cast(is_labelled, tf.float32))

    return loss


def later(number: float) -> Any:
    """Targets of which only later batches have this number."""
    targets = np.zeros_like(y) if number == 1 else y.copy()
    targets[[9, 11, 12, 17, 22, 29]] = number
    return targets


class Annealed(layers.Layer):
    """Adds a loss whose factor is zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = self.add_weight(name="factor", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.add_loss(self.factor * 0.5 * tf.reduce_sum(inputs**2))
        return inputs


class Anneal(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        (layer,) = [layer for layer in self.model.layers if isinstance(layer, Annealed)]
        layer.factor.assign(0.02 * epoch)


class Gate(layers.Layer):
    """Begins closed: what it adds couples samples."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = self.add_weight(name="gate", shape=(), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return inputs + self.gate * tf.reduce_mean(inputs, 0, keepdims=True)


class Shuffled(layers.Layer):
    """Moves samples to the places that sorted random numbers give."""

    def call(self, inputs: Any) -> Any:
        order = tf.argsort(tf.random.uniform(tf.shape(inputs)[:1]))
        return 0.5 * inputs + 0.5 * tf.gather(inputs, order)


def pairs_of_shuffled(_wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(found * keras.random.shuffle(found, seed=3))


@check
def hidden() -> Any:
    same = {"focal": both(model_of(), later(1), loss=focal)}
    for mark in (-100.0, float("nan")):
        same[str(mark)] = both(model_of(), later(mark), loss=of_labelled(mark))
    same["annealed"] = both(model_of(keras.Model, Annealed), callbacks=[Anneal])
    refused = {kind.__name__: raised(trained, model_of(keras.Model, kind)) for kind in (Gate, Shuffled)}
    if not LEGACY:
        messages.clear()
        trained(model_of(), loss=pairs_of_shuffled)
        refused["loss"] = ("", "".join(messages))
    return same, refused


# ------------------------------------------------------------------------------------------ what is left in Python


class Counting(keras.Model):
    """Does something in its first step alone, counts its steps, and draws numbers in Python."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_ready, self.calls, self.seen = False, 0, []
        self.shift = self.add_weight(name="shift", shape=(), initializer="zeros", trainable=False)

    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        self.calls += 1
        self.seen.append(self.calls)
        if not self.is_ready:
            self.is_ready = True
            self.shift.assign(0.25)
        with tf.GradientTape() as tape:
            found = self(inputs * (0.5 + np.random.rand()), training=True) + self.shift
            loss = tf.reduce_mean((targets - found) ** 2) / self.calls + 0.0 * len(self.seen)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}


class CountingLayer(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call(self, inputs: Any) -> Any:
        self.calls += 1
        return inputs * (1.0 + 0.1 * self.calls)


@check
def left_in_python() -> Any:
    found = {}
    for eagerly in (True, False):
        found[f"step, {eagerly}"] = both(model_of(Counting), run_eagerly=eagerly)
        found[f"layer, {eagerly}"] = both(model_of(keras.Model, CountingLayer), run_eagerly=eagerly)
    return found


# ------------------------------------------------------------------------------------------ others


class Langevin(keras.optimizers.Optimizer):
    """Adds noise to each update: the same on all ranks, as weights are."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.1)
        self.seeds = keras.random.SeedGenerator(5)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        noise = keras.random.normal(variable.shape, seed=self.seeds)
        self.assign_sub(variable, learning_rate * (gradient + 0.1 * noise))


class Key:
    """Its text takes the value of a variable, which no trace can."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def __repr__(self) -> str:
        return f"Key({float(keras.ops.convert_to_numpy(self.variable + 0.0))})"


class WithKeys(keras.Model):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes = {Key(self.trainable_variables[0][0, 0]): "a"}


@check
def others() -> Any:
    return {"noise": both(model_of(), optimizer=Langevin), "keys": both(model_of(WithKeys))}


run(sys.argv[1], *sys.argv[2:])
