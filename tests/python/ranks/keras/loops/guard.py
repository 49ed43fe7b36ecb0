"""Training loops on several ranks whose optimizers nobody told of ranks, eagerly and in graphs, of either Keras."""

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
from tarantella.keras.loops import guard

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
RANK, SIZE = tnt.get_rank(), tnt.get_size()
x = np.random.default_rng(RANK).normal(size=(6, 4)).astype(np.float32)  # ranks see other samples
messages = log_messages()


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1, name="second")])


def gradients(model: Any, tape: Any = None) -> list[Any]:
    with tf.GradientTape() if tape is None else tape as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    return list(tape.gradient(loss, model.trainable_variables))


def apply(optimizer: Any, grads: Any, model: Any) -> None:
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def of_all(model: Any) -> list[Any]:
    return list(gradients(model, tnt.DistributedGradientTape(tf.GradientTape())))


def flat(model: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


def state(optimizer: Any) -> int:
    """How many steps the optimizer has made."""
    return int(optimizer.iterations.numpy())


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "loss scale": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), **({} if LEGACY else {"initial_scale": 2.0})
    ),
}
if LEGACY:
    OPTIMIZERS["old kind"] = lambda: keras.optimizers.legacy.SGD(0.1)


def change(variables: Any, grads: Any) -> None:
    for variable, gradient in zip(variables, grads, strict=True):
        variable.assign_sub(0.1 * gradient)


@check
def without_an_optimizer() -> list[list[str]]:
    """Loops that change variables themselves: what is said of a tnt.Model's, eagerly and in a graph, and where all is right."""
    found, steps = [], {"seen": gradients, "reduced": of_all}
    for how in (lambda step: step(), lambda step: tf.function(step)()):
        for name, take in steps.items():
            messages.clear()
            guard._loops.warned.clear()
            model = tnt.Model(plain())
            how(lambda take=take, model=model: change(model.trainable_variables, take(model)))
            found.append([name, *messages])
    messages.clear()
    guard._loops.warned.clear()
    model = tnt.Model(plain())
    change(model.trainable_variables, [tnt.all_reduce(g) / SIZE for g in gradients(model)])
    gradients(model := tnt.Model(plain()))
    model.set_weights(model.get_weights())
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(np.ones([6, 4], "f4"), np.ones([6, 1], "f4"), batch_size=6, verbose=0)
    clipped = plain()
    apply(tnt.optimizers.Optimizer(keras.optimizers.SGD(0.1)), gradients(clipped), clipped)
    change(clipped.trainable_variables, [0.5 * variable for variable in clipped.trainable_variables])
    number = tf.Variable(1.0)
    number.assign_add(1.0)  # no tape has seen it
    return [*found, ["right", *messages]]


@check
def variables_of_no_model() -> list[str]:
    """In a graph, whose one trace tells of the first gradient as well."""
    messages.clear()
    guard._loops.warned.clear()
    weights = [tf.Variable(tf.ones([4, 1])), tf.Variable([0.0])]

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weights[0] + weights[1]))
        change(weights, tape.gradient(loss, weights))

    step()
    step()
    return list(messages)


@check
def refused() -> dict[str, list[Any]]:
    """What is raised, whether the weights are the ones before, and how many steps the optimizer has made."""
    found = {}
    for name, make in OPTIMIZERS.items():
        for how in ("eagerly", "in a graph"):
            model, optimizer = tnt.Model(plain()), make()
            before = flat(model)

            def step(optimizer: Any = optimizer, model: Any = model) -> None:
                apply(optimizer, gradients(model), model)

            error = raised(step if how == "eagerly" else tf.function(step))
            found[f"{name}, {how}"] = [*error, flat(model) == before, state(optimizer)]
    model = tnt.Model(plain())
    model.compile("sgd", "mse")
    model.fit(np.ones((6, 4)), np.ones((6, 1)), verbose=0)
    before = flat(model)
    found["the compiled one"] = [*raised(apply, model.optimizer, gradients(model), model), flat(model) == before, 0]
    model, optimizer = tnt.Model(plain()), keras.optimizers.SGD(0.1)
    before, loss = flat(model), lambda: tf.reduce_mean(model(x))
    if LEGACY:
        error = raised(optimizer.minimize, loss, model.trainable_variables)
    else:
        error = raised(optimizer.apply, gradients(model), model.trainable_variables)
    found["by another method"] = [*error, flat(model) == before, state(optimizer)]
    return found


def alike(model: Any) -> bool:
    """Whether all ranks have the same weights."""
    mine = np.array(flat(model))
    return bool(np.array_equal(tnt.broadcast(mine), mine))


@check
def the_lines_to_change() -> dict[str, list[Any]]:
    """What is raised after a line was changed, and whether the ranks' weights stay alike."""

    def with_optimizer(model: Any) -> Callable[[], None]:
        optimizer = tnt.optimizers.Optimizer(keras.optimizers.Adam(0.1))
        return lambda: apply(optimizer, gradients(model), model)

    def with_tape(model: Any) -> Callable[[], None]:
        optimizer = keras.optimizers.Adam(0.1)
        return lambda: apply(optimizer, of_all(model), model)

    def clipped(model: Any) -> Callable[[], None]:
        optimizer = keras.optimizers.Adam(0.1)
        return lambda: apply(optimizer, tf.clip_by_global_norm(of_all(model), 1.0)[0], model)

    def by_hand(model: Any) -> Callable[[], None]:
        optimizer = keras.optimizers.Adam(0.1)
        return lambda: apply(optimizer, [tnt.all_reduce(g) / SIZE for g in gradients(model)], model)

    def by_hand_at_once(model: Any) -> Callable[[], None]:
        optimizer = keras.optimizers.Adam(0.1)

        def step() -> None:
            grads = gradients(model)
            total = tnt.all_reduce(tf.concat([tf.reshape(g, [-1]) for g in grads], 0))
            parts = tf.split(total, [int(np.prod(g.shape)) for g in grads])
            apply(optimizer, [tf.reshape(p, g.shape) for p, g in zip(parts, grads, strict=True)], model)

        return step

    found = {}
    for make in (with_optimizer, with_tape, clipped, by_hand, by_hand_at_once):
        for how in ("eagerly", "in a graph"):
            model = tnt.Model(plain())
            tnt.broadcast_variables(model.variables)
            step = make(model)
            step = step if how == "eagerly" else tf.function(step)
            errors = raised(step) + raised(step)
            found[f"{make.__name__}, {how}"] = [errors, alike(model)]
    return found


@check
def a_number_is_reduced_only() -> list[str]:
    """The sum of a loss over ranks is no reduction of gradients."""
    model, optimizer = tnt.Model(plain()), keras.optimizers.SGD(0.1)
    tnt.all_reduce(tf.reduce_mean(model(x)))
    return raised(apply, optimizer, gradients(model), model)


class HidesItsOptimizer(keras.Sequential):
    """Its optimizer is where nobody looks."""

    def train_step(self, data: Any) -> Any:
        apply(hidden, gradients(self), self)
        return {"loss": 0.0}


hidden = keras.optimizers.SGD(0.1)


@check
def an_optimizer_that_the_model_does_not_hold() -> list[Any]:
    model = tnt.Model(HidesItsOptimizer([keras.Input((4,)), layers.Dense(1)]))
    model.compile("sgd", "mse")
    before = flat(model)
    error = raised(model.fit, np.ones((6, 4)), np.ones((6, 1)), verbose=0)
    return [*error, len(before) == len(flat(model)), state(hidden)]


@check
def steps_that_pass() -> list[Any]:
    """Methods of a tnt.Model, a model that each rank shall have, and what was said of all this."""
    messages.clear()
    model = tnt.Model(plain())
    model.compile("adam", "mse")
    own = tnt.Model(plain(), parallel_strategy=tnt.ParallelStrategy.NONE)
    own.compile("adam", "mse")
    optimizer, data = keras.optimizers.SGD(0.1), (np.ones((6, 4)), np.ones((6, 1)))

    class Callback(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            own.fit(*data, verbose=0)

    errors = [
        raised(model.fit, *data, verbose=0, callbacks=[Callback()]),
        raised(model.train_on_batch, *data),
        raised(model.evaluate, *data, verbose=0),
        raised(own.fit, *data, verbose=0),
        raised(lambda: apply(optimizer, gradients(own), own)),
    ]
    return [errors, list(messages)]


@check
def a_plain_model() -> list[Any]:
    """Two loops of plain models, and what was said."""
    messages.clear()
    guard._loops.warned.clear()
    found = []
    for _ in range(2):
        model, optimizer = plain(), keras.optimizers.SGD(0.1)
        found.append(raised(lambda m=model, o=optimizer: apply(o, gradients(m), m)))
    return [found, list(messages)]


run(*sys.argv[1:])
