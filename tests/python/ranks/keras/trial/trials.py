"""Losses and training steps that are not means over samples: what ranks make of them, and what plain Keras does."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import counting_steps  # noqa: F401
import layer_trials  # noqa: F401
import metric_trials  # noqa: F401
import rare_samples  # noqa: F401
import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras.step import unwrapped_models
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.trial.trials import Trials
from tarantella.keras.trial.verdict import Answer
from trial_models import (
    BATCH,
    LEGACY,
    RANK,
    SAMPLES,
    OwnLoss,
    OwnStep,
    Subclassed,
    WithDropout,
    both,
    contrastive,
    data,
    gamma,
    gathered,
    largest,
    masked,
    median,
    noisy,
    noisy_sum,
    paired,
    plain,
    ratio,
    reduce_sum,
    shuffled,
    squares,
    tensordot,
    trained,
    x,
    y,
)

logging.getLogger("TNT_LIB").setLevel(logging.INFO)
messages = log_messages()


@check
def summed() -> dict[str, Any]:
    return {
        "reduce_sum": both(reduce_sum),
        "tensordot": both(tensordot),
        "vector in a step": both(squares, kind=OwnStep),
        "sum in a step": both(reduce_sum, kind=OwnStep, eagerly=False),
        "sum in compute_loss": both(reduce_sum, kind=OwnLoss),
        "ratio in a step": both(ratio, kind=OwnStep),
        "mean in a step": both(rmse_of_each, kind=OwnStep),
    }


def rmse_of_each(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.sqrt(squares(wanted, found) + 1e-3))


@check
def refused() -> dict[str, Any]:
    steps = {"step": (largest, OwnStep), "compute_loss": (largest, OwnLoss), "shuffled": (shuffled, OwnStep)}
    found = {name: raised(trained, *what) for name, what in steps.items()}
    return {**found, "across_ranks": raised(trained, largest, OwnLoss, across_ranks=True)}


@check
def gathered_by_itself() -> dict[str, Any]:
    """Losses that couple samples are those of one device, with a warning each."""
    losses = {"largest": largest, "median": median, "contrastive": contrastive, "paired": paired}
    found: dict[str, Any] = {}
    for name, loss in losses.items():
        messages.clear()
        found[name] = [*both(loss), [message for message in messages if "couples" in message]]
    words = np.arange(SAMPLES * 6, dtype=np.int32).reshape(SAMPLES, 6) % 9
    numbers_of: list[dict[str, Any]] = []
    for strategy in (tnt.ParallelStrategy.DATA, *([] if RANK else [tnt.ParallelStrategy.NONE])):
        keras.utils.set_random_seed(3)
        embedding = keras.layers.Embedding(9, 4)
        net = keras.Sequential([keras.Input((6,)), embedding, keras.layers.Dense(9, "softmax")])
        model = tnt.Model(net, parallel_strategy=strategy)
        model.compile("sgd", masked)
        losses_of_steps = [float(model.train_on_batch(words, words)) for _ in range(3)]
        evaluated_loss = float(model.evaluate(words, words, verbose=0))
        numbers_of.append({"losses": losses_of_steps, "evaluated": [evaluated_loss], "last": losses_of_steps[-1:]})
    found["masked"] = [numbers_of[0], numbers_of[-1] if RANK == 0 else None, []]
    return found


@check
def declared() -> list[Any]:
    """What is declared to be independent is not tried: nothing is said, and the mean of the ranks' losses is trained."""
    found = []
    for loss, options in ((largest, {"samples": "independent"}), (tnt.independent_samples(lambda a, b: largest(a, b)), {})):
        messages.clear()
        trained(loss, **options)
        found.append([message for message in messages if "couple" in message or "compared" in message])
    return [*found, raised(tnt.Model, plain(), samples="dependent")]


@check
def in_16_bits() -> list[Any]:
    """Mixed precision is compared in float32."""
    found = []
    for loss in (largest, squares):
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        policy = "mixed_bfloat16"
        dense = [keras.layers.Dense(30, "relu", dtype=policy), keras.layers.Dense(3, dtype=policy)]
        net = keras.Sequential([keras.Input((4,)), *dense])
        messages.clear()
        model = tnt.Model(net)
        model.compile("sgd", loss)
        model.fit(data, epochs=1, verbose=0)
        found.append([message for message in messages if "couples" in message or "compared" in message])
    return found


@check
def one_sample_each() -> list[Any]:
    """Ranks with one sample borrow from each other."""
    messages.clear()
    model = tnt.Model(plain())
    model.compile("sgd", largest)
    history = model.fit(x[:8], y[:8], batch_size=tnt.get_size(), shuffle=False, epochs=1, verbose=0).history["loss"]
    alone = plain()
    alone.compile("sgd", largest)
    with unwrapped_models.internal_call():
        truth = alone.fit(x[:8], y[:8], batch_size=tnt.get_size(), shuffle=False, epochs=1, verbose=0).history["loss"]
    return [history, truth, [message for message in messages if "compared" in message]]


@check
def later_epochs() -> list[list[str]]:
    """A batch of another shape in a later epoch is tried, too."""

    epochs = iter(range(100))

    def lengths() -> Any:
        length = 4 if next(epochs) < 1 else 6
        for _ in range(3):
            yield np.ones((6, length), np.float32) * np.arange(1, 7, dtype=np.float32)[:, None], np.ones((6, 1), np.float32)

    def output(rows: Any) -> Any:
        rows = rows - (tf.reduce_mean(rows, 0) if rows.shape[1] is None or rows.shape[1] > 4 else 0)
        return tf.reduce_sum(rows, 1, keepdims=True)

    spec = (tf.TensorSpec([None, None]), tf.TensorSpec([None, 1]))
    inputs = keras.Input((None,))
    model = tnt.Model(keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Lambda(output, output_shape=(1,))(inputs))))
    model.compile("sgd", "mse", run_eagerly=True)
    data = tf.data.Dataset.from_generator(lengths, output_signature=spec)
    return [raised(model.fit, data, epochs=2, verbose=0)]


class Adds(Subclassed):
    """Its only losses are those that it adds, and those of regularizers."""

    def __init__(self, loss_of: Callable[..., Any]) -> None:
        super().__init__(loss_of)
        self.out = keras.layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l2")

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = self.out(inputs)
        if training:
            self.add_loss(0.1 * self.loss_of(1.0, outputs))
        self.add_loss(tf.reduce_mean(outputs))
        return outputs


@check
def added() -> dict[str, Any]:
    return {"sum": both(reduce_sum, kind=Adds, eagerly=False), "mean": both(rmse_of_each, kind=Adds)}


@check
def added_and_coupled() -> list[str]:
    return raised(trained, largest, Adds)


class OfBatch(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs - tf.reduce_mean(inputs, 0, keepdims=True)


@check
def outputs_that_couple() -> list[list[str]]:
    found = []
    for layer in (OfBatch(), keras.layers.Softmax(axis=0)):
        model = tnt.Model(keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(3)]))
        model.compile("sgd", "mse")
        found.append(raised(model.train_on_batch, x[:5], y[:5]))
    return found


@check
def evaluated() -> list[float]:
    """By ranks, and by plain Keras."""
    model, alone = tnt.Model(plain()), plain()
    for one in (model, alone):
        one.compile("sgd", largest)
    with unwrapped_models.internal_call():
        return [float(model.evaluate(x, y, verbose=0)), float(alone.evaluate(x, y, verbose=0))]


@check
def accepted() -> list[Any]:
    found = []
    for loss, kind in ((largest, None), (ratio, OwnStep)):
        messages.clear()
        model = tnt.Model(plain(kind, loss), accept_approximate=True)
        model.compile("sgd", None if kind else loss, run_eagerly=True)
        for _ in range(2):
            model.fit(x, y, batch_size=BATCH, verbose=0)
        found.append([message for message in messages if "accept_approximate" in message])
    return found


@check
def over_all_ranks() -> dict[str, Any]:
    return {
        "largest": both(largest, across_ranks=True),
        "contrastive": both(contrastive, across_ranks=True, eagerly=False),
        "gathered": both(gathered, contrastive),
        "gathered in a step": both(gathered, contrastive, kind=OwnStep),
    }


class Norms(Subclassed):
    """Logs a number that is neither a mean nor a sum, and tracks a loss of a compiled one."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squares(data[1], self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": tf.reduce_mean(loss), "norm": tf.norm(loss)}


@check
def other_numbers() -> list[str]:
    messages.clear()
    model = tnt.Model(plain(Norms))
    model.compile("sgd", run_eagerly=True)
    for _ in range(2):
        model.fit(x, y, batch_size=BATCH, verbose=0)
    return [message for message in messages if "neither" in message]


@check
def batches_of_its_own() -> list[str]:
    """Each is a batch: nothing is divided."""
    model = tnt.Model(plain())
    model.compile("sgd", largest, run_eagerly=True)
    return raised(model.fit, x, y, batch_size=BATCH, verbose=0, tnt_distribute_dataset=False)


@check
def losses_of_keras() -> list[str]:
    """What is said of them: none is refused, none cannot be compared; with weights of samples, too."""
    names = ["mse", "mae", "mape", "msle", "kld", "poisson", "huber", "log_cosh", "hinge", "squared_hinge", "categorical_hinge"]
    names += ["cosine_similarity", "binary_crossentropy", "categorical_crossentropy", "binary_focal_crossentropy"]
    losses = [*names, keras.losses.MeanSquaredError(reduction="sum"), keras.losses.SparseCategoricalCrossentropy(True)]
    messages.clear()
    inputs = keras.Input((4,))
    model = tnt.Model(keras.Model(inputs, [keras.layers.Dense(3, activation="sigmoid")(inputs) for _ in losses]))
    model.compile("sgd", losses, run_eagerly=True)
    labels = [y[:5]] * len(losses[1:]) + [y[:5, 0].astype(np.int32)]
    error = raised(model.test_on_batch, x[:5], labels, [np.ones(5, np.float32)] * len(losses))
    return [*error, *(message for message in messages if "loss" in message)]


@check
def not_compared() -> list[list[str]]:
    found = []
    cases = (noisy, None), (noisy, OwnStep), (gamma, OwnStep), (gathered, None), (lambda a, b: 0 * largest(a, b), None)
    for loss, kind in cases:
        messages.clear()
        trained(loss, kind)
        found.append([message for message in messages if "could not be compared" in message or "is not tried" in message])
    return found


@check
def compared_without_noise() -> list[list[str]]:
    """What draws random numbers is known all the same: they are constant in a trial."""
    found = []
    for loss, kind in ((noisy_sum, None), (noisy_sum, OwnStep)):
        messages.clear()
        trained(loss, kind)
        found.append([message for message in messages if "could not be compared" in message or "ranks add up" in message])
    return found


@check
def several_outputs() -> list[str]:
    messages.clear()
    inputs = keras.Input((4,))
    outputs = [keras.layers.Dense(3, name=name)(inputs) for name in ("first", "second", "third")]
    model = tnt.Model(keras.Model(inputs, outputs))
    model.compile("sgd", [largest, "mse", median])
    model.train_on_batch(x[-9:], [y[-9:]] * 3)
    return [message for message in messages if "couples" in message]


class Unpacks(Subclassed):
    """Its steps take what Keras gives them for one batch: labels and weights, too, or not."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def _checked(self, data: Any) -> Any:
        if len(data) != self.parts:
            raise ValueError(f"a step got {len(data)} things")
        return data

    def train_step(self, data: Any) -> Any:
        return super().train_step(self._checked(data))

    def test_step(self, data: Any) -> Any:
        return super().test_step(self._checked(data))


@check
def single_batches() -> list[list[str]]:
    """Keras 3 gives a step labels and weights of a single batch always, legacy Keras those that were given. So do we."""
    found = []
    for strategy in (tnt.ParallelStrategy.DATA, tnt.ParallelStrategy.NONE):
        for parts in (2, 3):
            model = tnt.Model(Unpacks(parts), parallel_strategy=strategy)
            model.compile("sgd", "mse")
            for step in (model.train_on_batch, model.test_on_batch):
                found.append([line.split(":")[0] for line in raised(step, x[:5], y[:5])[1:]])
    return found


def state(model: Any) -> list[list[float]]:
    optimizers = model.optimizer.variables
    variables = [*model.variables, *(optimizers() if callable(optimizers) else optimizers), model.steps]
    return [np.asarray(v).ravel().tolist() for v in variables]


def drawn() -> list[float]:
    draw = keras.backend.random_uniform if LEGACY else keras.random.uniform
    return [random.random(), float(np.random.random()), float(tf.random.uniform(())), float(draw((1,))[0])]


@check
def no_trace() -> list[bool]:
    """What a trial changes: nothing, also where a step draws noise, counts, and keeps metrics."""
    batch = tf.constant(x[:5]), tf.constant(y[:5])
    spec = (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 3]))
    same, numbers_drawn = [], []
    for tries in (False, True):
        model = plain(WithDropout, squares)
        model.compile("adam", "mse", run_eagerly=True)
        with unwrapped_models.internal_call():
            model.train_on_batch(x[:5], y[:5])
        before = state(model)
        keras.utils.set_random_seed(5)
        if tries:
            Trials(model, LossKinds(), False, Answer()).run(batch, spec, ["train_step", "test_step", "predict_step"], True, 5)
        same.append(state(model) == before)
        numbers_drawn.append(drawn())
    return [*same, numbers_drawn[0] == numbers_drawn[1]]


run(sys.argv[1], *sys.argv[2:])
