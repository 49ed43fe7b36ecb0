"""Losses that are made of sums over a batch, as a sum over tokens divided by their number: on ranks, and in plain Keras."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, run

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
RANK = tnt.get_rank()
SAMPLES, BATCH, WORDS, LENGTH = 22, 7, 9, 5  # the last batch has one sample: other ranks have none
logging.getLogger("TNT_LIB").setLevel(logging.INFO)
messages = log_messages()
numbers = np.random.default_rng(0)
words = numbers.integers(1, WORDS, (SAMPLES, LENGTH)).astype(np.int32)
wanted = words * (np.arange(LENGTH) < numbers.integers(1, LENGTH + 1, SAMPLES)[:, np.newaxis])
wanted[1::2][:3] = 0  # on two ranks, all samples of rank 1 in the first batch are padding


def of_tokens(y: Any, found: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, found)


def ratio(y: Any, found: Any) -> Any:
    """The sum over tokens that are not padding, divided by their number."""
    mask = tf.cast(tf.not_equal(y, 0), tf.float32)
    return tf.reduce_sum(of_tokens(y, found) * mask) / tf.reduce_sum(mask)


def guarded(y: Any, found: Any) -> Any:
    mask = tf.cast(tf.not_equal(y, 0), tf.float32)
    return tf.reduce_sum(of_tokens(y, found) * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def counted(y: Any, found: Any) -> Any:
    mask = tf.not_equal(y, 0)
    total = tf.reduce_sum(tf.where(mask, of_tokens(y, found), 0.0))
    return tf.math.divide_no_nan(total, tf.cast(tf.math.count_nonzero(mask), tf.float32))


def selected(y: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.boolean_mask(of_tokens(y, found), tf.not_equal(y, 0)))


def root(y: Any, found: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(of_tokens(y, found))))


def dice(y: Any, found: Any) -> Any:
    """Soft, of each class, with a number that keeps it from dividing by zero."""
    truth = tf.one_hot(tf.cast(y, tf.int32), WORDS)
    both, each = tf.reduce_sum(truth * found, [0, 1]), tf.reduce_sum(truth + found, [0, 1])
    return 1 - tf.reduce_mean((2 * both + 1) / (each + 1))


def largest(y: Any, found: Any) -> Any:
    return tf.reduce_max(of_tokens(y, found))


def penalised(y: Any, found: Any) -> Any:
    """A ratio, a mean over samples, and a number that depends on no sample."""
    return counted(y, found) + 0.1 * tf.reduce_mean(tf.square(found)) + 0.01 * tf.reduce_sum(tf.square(tf.ones([3])))


def network(start: str = "glorot_uniform") -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, 6)(inputs)
    return inputs, keras.layers.Dense(WORDS, "softmax", kernel_initializer=start)(keras.layers.LayerNormalization()(x))


def plain() -> Any:
    return keras.Model(*network())


class OwnLoss(keras.Model):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **how: Any) -> Any:
        loss = ratio(y, y_pred)
        self.tracker.update_state(loss)
        self.of_tokens.update_state(of_tokens(y, y_pred))
        return loss


class OwnSteps(keras.Model):
    """Steps of tokens, as tutorials write them: a ratio of sums, numbers that are tracked, and a regularizer."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            found = self(x, training=True)
            loss = ratio(y, found) + 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_variables])
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return self.logs(loss, y, found)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        found = self(x, training=False)
        return self.logs(ratio(y, found), y, found)

    def logs(self, loss: Any, y: Any, found: Any) -> dict[str, Any]:
        self.tracker.update_state(loss)
        self.of_tokens.update_state(of_tokens(y, found))
        return {"tracker": self.tracker.result(), "of_tokens": self.of_tokens.result(), "ratio": loss}


def own_steps(start: str = "glorot_uniform") -> Any:
    model = OwnSteps(*network(start))
    model.tracker, model.of_tokens = keras.metrics.Mean(name="tracker"), keras.metrics.Mean(name="of_tokens")
    return model


def untrained() -> Any:
    """All words are as likely: the loss of any samples is the same, and only the gradients couple them."""
    return own_steps("zeros")


class LossInCall(keras.Model):
    """Gets labels among its inputs and computes its loss in `call`, as the models of transformers do."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def call(self, inputs: Any, training: bool = False) -> Any:
        found = self.network(inputs["words"])
        return tf.reshape(ratio(inputs["wanted"], found), (1,)), found

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss, found = self(data, training=True)
            loss = self.of_compile(loss, loss)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return self.logs(loss, data, found)

    def test_step(self, data: Any) -> dict[str, Any]:
        loss, found = self(data)
        return self.logs(self.of_compile(loss, loss), data, found)

    def of_compile(self, y: Any, found: Any) -> Any:
        return self.compiled_loss(y, found) if LEGACY else self.compute_loss(y=y, y_pred=found)

    def logs(self, loss: Any, data: Any, found: Any) -> dict[str, Any]:
        return {"loss": loss, "of_tokens": tf.reduce_mean(of_tokens(data["wanted"], found))}


def itself(_: Any, found: Any) -> Any:
    return tf.reduce_mean(found)


def in_call() -> Any:
    return LossInCall(keras.Model(*network()))


def own_loss() -> Any:
    model = OwnLoss(*network())
    model.tracker, model.of_tokens = keras.metrics.Mean(name="tracker"), keras.metrics.Mean(name="of_tokens")
    return model


class OwnStep(keras.Model):
    """Its step makes two updates, of each half of the words, by a loss and an accuracy of tokens, as image captioning does."""

    clips = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loss_tracker, self.right = keras.metrics.Mean(name="loss"), keras.metrics.Mean(name="right")

    def numbers_of(self, x: Any, y: Any) -> Any:
        found = self(x)
        mask = tf.cast(tf.not_equal(y, 0), tf.float32)
        is_right = tf.cast(tf.equal(tf.cast(y, tf.int64), tf.argmax(found, 2)), tf.float32)
        return ratio(y, found), tf.reduce_sum(is_right * mask) / tf.reduce_sum(mask)

    def step(self, data: Any, training: bool) -> Any:
        for part in (slice(0, 2), slice(2, None)):
            with tf.GradientTape() as tape:
                loss, right = self.numbers_of(data[0][:, part], data[1][:, part])
            if training:
                gradients = tape.gradient(loss, self.trainable_variables)
                gradients = [tf.clip_by_norm(g, 0.3) for g in gradients] if self.clips else gradients
                self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.loss_tracker.update_state(loss)
            self.right.update_state(right)
        return {"loss": self.loss_tracker.result(), "right": self.right.result()}

    def train_step(self, data: Any) -> Any:
        return self.step(data, True)

    def test_step(self, data: Any) -> Any:
        return self.step(data, False)

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker, self.right]


class ClippingStep(OwnStep):
    clips = True


def own_step(kind: type = OwnStep) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(WORDS, 6)(inputs)
    return kind(inputs, keras.layers.Dense(WORDS, activation="softmax")(keras.layers.LayerNormalization()(hidden)))


def clipping_step() -> Any:
    return own_step(ClippingStep)


class AddsRatio(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        y, found = inputs
        self.add_loss(ratio(y, found))
        return found


def adding() -> Any:
    inputs, found = network()
    y = keras.Input((LENGTH,), dtype="int32")
    if not LEGACY:
        return keras.Model([inputs, y], AddsRatio()([y, found]))
    model = keras.Model([inputs, y], found)
    model.add_loss(ratio(y, found))  # each operation becomes a layer
    return model


def trained(make: Any, loss: Any = None, scaled: bool = False, **options: Any) -> dict[str, Any]:
    model = tnt.Model(make(), **options)
    optimizer = keras.optimizers.SGD(0.5)
    if scaled:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    model.compile(optimizer, loss)
    inputs = [words, wanted] if make is adding else words
    data = tf.data.Dataset.from_tensor_slices((tuple(inputs), wanted) if make is adding else (inputs, wanted))
    if make is adding:
        data = data.map(lambda inputs, _: (inputs,))
    if make is in_call:
        data = data.map(lambda words, wanted: {"words": words, "wanted": wanted})
    data = data.batch(BATCH)
    history = model.fit(data, epochs=1, verbose=0, validation_data=data).history
    weights = np.concatenate([np.asarray(v).ravel() for v in model.trainable_variables]).tolist()
    return {**{name: [float(v) for v in values] for name, values in history.items()}, "weights": weights}


def compared(*what: Any, **how: Any) -> dict[str, float]:
    """The largest differences from plain Keras on rank 0."""
    ours = trained(*what, **how)
    truth = trained(*what, **how, parallel_strategy=tnt.ParallelStrategy.NONE) if RANK == 0 else ours
    assert len(truth) > 2 and truth.keys() == ours.keys(), (truth.keys(), ours.keys())
    return {name: float(np.abs(np.array(ours[name]) - truth[name]).max()) for name in truth}


@check
def compiled() -> dict[str, Any]:
    losses = [guarded, selected, dice, penalised]
    return {loss.__name__: compared(plain, loss) for loss in losses}


@check
def scaled() -> dict[str, float]:
    return compared(plain, root, scaled=True)


@check
def own() -> dict[str, float]:
    return compared(own_loss)


@check
def steps() -> dict[str, dict[str, float]]:
    global wanted
    before, wanted = wanted, np.maximum(wanted, (np.arange(LENGTH) % 3 == 0).astype(np.int32))  # no half is all padding
    try:
        return {make.__name__: compared(make) for make in (own_step, clipping_step)}
    finally:
        wanted = before


@check
def own_steps_of_tokens() -> dict[str, float]:
    return {f"{make.__name__} {name}": error for make in (own_steps, untrained) for name, error in compared(make).items()}


@check
def called() -> dict[str, float]:
    return compared(in_call, itself)


@check
def added() -> dict[str, float]:
    return compared(adding)


@check
def gathered() -> dict[str, float]:
    return compared(plain, largest)


@check
def said() -> list[str]:
    return [message for message in messages if "made of sums" in message]


run(sys.argv[1], *sys.argv[2:])
