"""Ways to train without synchronisation, by accident or on purpose: each must end in an error on all ranks, or say so."""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras.step.gradient_reduction import GradientReduction

RANK = tnt.get_rank()
x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(5)
messages = log_messages()


def plain(cls: Any = keras.Sequential) -> Any:
    return cls([keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1, name="second")])


def compiled(model: Any) -> Any:
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def fit(model: Any, data: Any = dataset, **how: Any) -> Any:
    return model.fit(data, epochs=1, verbose=0, **how)


class Count(keras.callbacks.Callback):
    begun = ended = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun += 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended += 1


@check
def gradients_not_reduced() -> list[Any]:
    reduce_gradients = GradientReduction.reduce_gradients
    GradientReduction.reduce_gradients = lambda self, grads, variables: grads
    count = Count()
    try:
        return [*raised(fit, compiled(tnt.Model(plain())), callbacks=[count]), count.begun, count.ended]
    finally:
        GradientReduction.reduce_gradients = reduce_gradients


class OptimizerOfItsOwn(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=targets, y_pred=self(inputs, training=True))
        for variable, gradient in zip(self.trainable_variables, tape.jacobian(loss, self.trainable_variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return {"loss": loss}


@check
def optimizer_not_used() -> list[str]:
    return raised(fit, compiled(tnt.Model(plain(OptimizerOfItsOwn))))


class Disturb(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if RANK == 1:
            kernel = self.model.get_layer("second").kernel
            kernel.assign(kernel + 1e-3)


@check
def weights_changed_on_one_rank() -> list[str]:
    return raised(fit, compiled(tnt.Model(plain())), callbacks=[Disturb()])


# ------------------------------------------------------------------------------------------------ models and copies


@check
def the_model_inside() -> list[list[str]]:
    inner = plain()
    compiled(tnt.Model(inner))
    return [raised(fit, inner), raised(inner.train_on_batch, x, y)]


@check
def clones() -> list[list[str]]:
    wrapped = compiled(tnt.Model(plain()))
    inputs = keras.Input((4,))
    functional = tnt.Model(keras.Model(inputs, layers.Dense(1)(inputs)))
    sources = [wrapped, wrapped.model, functional, functional.model]
    return [raised(fit, compiled(keras.models.clone_model(source))) for source in sources]


@check
def loaded_from_a_file() -> list[list[str]]:
    wrapped = compiled(tnt.Model(plain()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        wrapped.save(path, tnt_save_all_devices=True)
        loads = [keras.models.load_model, keras.saving.load_model]
        return [raised(fit, load(path)) for load in loads]


def trained_alike(model: Any) -> list[Any]:
    """Whether it is distributed: its class, and its weights after each rank has begun with others."""
    for variable in model.trainable_variables:
        variable.assign(variable + RANK)
    error = raised(fit, compiled(model))
    return [error, np.concatenate([w.ravel() for w in model.get_weights()]).tolist()]


@check
def copied() -> list[list[Any]]:
    wrapped = compiled(tnt.Model(plain()))
    copies = [copy.copy(wrapped), copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped)), tnt.Model(wrapped)]
    return [trained_alike(one) for one in copies]


@check
def a_clone_that_is_wrapped() -> list[Any]:
    return trained_alike(tnt.Model(keras.models.clone_model(tnt.Model(plain()))))


@check
def copies_of_the_model_inside() -> list[list[str]]:
    inner = tnt.Model(plain()).model
    return [raised(fit, compiled(copy.deepcopy(inner))), raised(fit, compiled(pickle.loads(pickle.dumps(inner))))]


@check
def a_plain_model() -> list[Any]:
    messages.clear()
    model = compiled(plain())
    errors = raised(fit, model) + raised(fit, model)
    return [errors, list(messages)]


@check
def a_plain_model_on_purpose() -> list[Any]:
    messages.clear()
    model = plain()
    same = tnt.Model(model, parallel_strategy=tnt.ParallelStrategy.NONE) is model
    return [same, raised(fit, compiled(model)), list(messages)]


# ------------------------------------------------------------------------------------------ models that do not match


def raised_by_fit(model: Any, optimizer: Any = "sgd", **compiling: Any) -> list[str]:
    wrapped = tnt.Model(model)
    wrapped.compile(optimizer, "mse", **compiling)
    return raised(fit, wrapped)


def layered(units: int = 3, layers_between: int = 0, **how: Any) -> Any:
    between = [layers.Dense(3, name=f"between_{i}") for i in range(layers_between)]
    first = layers.Dense(units, name="first", **how)
    return keras.Sequential([keras.Input((4,)), first, *between, layers.Dense(1, name="second")], name="model")


@check
def other_size_of_a_layer() -> list[str]:
    return raised_by_fit(layered(units=5 if RANK == 1 else 3))


@check
def other_dtype_of_a_layer() -> list[str]:
    return raised_by_fit(layered(dtype="float64" if RANK == 1 else "float32"))


@check
def other_number_of_variables() -> list[str]:
    return raised_by_fit(layered(layers_between=1 if RANK == 1 else 0))


@check
def fewer_variables_at_the_end() -> list[str]:
    model = layered()
    if RANK == 1:
        model.layers[-1].trainable = False
    return raised_by_fit(model)


@check
def other_optimizer() -> list[str]:
    return raised_by_fit(layered(), optimizer="adam" if RANK == 1 else "sgd")


@check
def other_metrics() -> list[str]:
    return raised_by_fit(layered(), metrics=["mae", "mse"] if RANK == 1 else ["mae"])


@check
def other_batches() -> list[str]:
    mine = np.random.default_rng(RANK).normal(size=(20, 4)).astype(np.float32)
    other = tf.data.Dataset.from_tensor_slices((mine, y)).batch(5)
    return raised(fit, compiled(tnt.Model(plain())), other)


def fit_on(inputs: Any, targets: Any = y, batch: int = 5, **how: Any) -> list[str]:
    model = tnt.Model(keras.Sequential([keras.Input((4,), name="inputs"), layers.Dense(1)]), **how)
    return raised(fit, compiled(model), tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(batch))


@check
def other_targets_on_one_rank() -> list[str]:
    return fit_on({"inputs": x}, y + (RANK == 1))


@check
def another_column_on_one_rank() -> list[str]:
    return fit_on({"inputs": x + (RANK == 2)})


@check
def another_number_of_samples() -> list[str]:
    def batches() -> Any:
        n = 4 if RANK == 1 else 5
        yield from ((x[i : i + n], y[i : i + n]) for i in (0, 5, 10))

    kinds = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    return raised(fit, compiled(tnt.Model(plain())), tf.data.Dataset.from_generator(batches, output_signature=kinds))


@check
def another_order_that_was_allowed() -> list[str]:
    shifted = tf.data.Dataset.from_tensor_slices((x[RANK : 17 + RANK], y[RANK : 17 + RANK]))
    mapped = shifted.map(lambda a, b: (a, b), num_parallel_calls=2, deterministic=False)
    return raised(fit, compiled(tnt.Model(plain())), mapped.batch(5))


@check
def before_the_maps() -> list[str]:
    mapped = tf.data.Dataset.from_tensor_slices((x[:18] + (RANK == 0), y[:18])).map(lambda a, b: (a, b))
    return raised(fit, compiled(tnt.Model(plain())), mapped.batch(6))


@check
def other_shuffles() -> list[str]:
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(20, seed=RANK)
    return raised(fit, compiled(tnt.Model(plain())), shuffled.batch(5))


@check
def other_ragged_rows() -> list[str]:
    """With the same targets on all ranks."""
    inputs = keras.Input((None,), dtype="int32", ragged=True)
    hidden = layers.GlobalAveragePooling1D()(layers.Embedding(9, 2)(inputs))
    model = compiled(tnt.Model(keras.Model(inputs, layers.Dense(1)(hidden))))
    rows = tf.RaggedTensor.from_row_lengths(np.arange(20) % (7 + (RANK == 1)), [2, 3] * 4)
    return raised(fit, model, tf.data.Dataset.from_tensor_slices((rows, y[:8])).batch(4))


@check
def other_batch_on_one_rank() -> list[str]:
    return raised(compiled(tnt.Model(plain())).train_on_batch, x[:5] + (RANK == 1), y[:5])


@check
def other_batch_size() -> list[str]:
    return raised(fit, compiled(tnt.Model(plain())), tf.data.Dataset.from_tensor_slices((x, y)).batch(5 + RANK))


@check
def the_job_goes_on() -> list[Any]:
    """After all these errors."""
    return trained_alike(tnt.Model(plain()))


run(sys.argv[1])
