"""Models with a training step of their own (`several_models`), on all ranks and as plain Keras trains them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, optimizers

import tarantella as tnt
from checks import check, raised, run
from several_models import BATCH, COMPARED, Gan, PenalisedGan, Vae, net, update
from tarantella.keras.adapter.common import building
from tarantella.keras.checkpoint import state

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
RANK = tnt.get_rank()


def made(cls: Any, how: Any = tnt.ParallelStrategy.DATA) -> Any:
    """The model, compiled. Ranks begin with other weights."""
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(7 + RANK)
    keras_model = cls()
    model = tnt.Model(keras_model, parallel_strategy=how)
    keras_model.prepare(model)
    return model


def compared(cls: Any, train: Callable[[Any], list[Any]]) -> list[Any]:
    """How far weights and the numbers that `train` gives are from plain Keras', and whether all ranks have the same bits.

    Rank 0 trains as plain Keras does, too.
    """
    model = made(cls)
    numbers = [np.asarray(n, np.float64) for n in train(model)]
    own = np.concatenate([np.asarray(a, np.float64).ravel() for a in [*weights(model), *numbers]])
    same = bool(np.array_equal(tnt.broadcast(own), own))
    if RANK != 0:
        return [0.0, 0.0, same]
    plain = made(cls, tnt.ParallelStrategy.NONE)
    theirs = train(plain)
    return [far(weights(model), weights(plain)), far(numbers, theirs), same]


def batches(cls: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(cls.data).batch(BATCH)


def weights(model: Any) -> list[Any]:
    own = [model.temperature] if hasattr(model, "temperature") else []
    return [np.asarray(v) for v in [*model.trainable_variables, *own]]


def far(ours: Any, theirs: Any) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))) for a, b in pairs)


def history(model: Any, cls: Any, epochs: int = 1, **how: Any) -> list[Any]:
    logs = model.fit(batches(cls), epochs=epochs, verbose=0, **how).history
    return [logs[name] for name in sorted(logs)]


@check
def equivalence() -> dict[str, list[Any]]:
    """Each model, with validation where it has a test step."""
    found = {}
    for cls in COMPARED:
        how = {"validation_data": batches(cls)} if "test_step" in vars(cls) else {}
        found[cls.__name__] = compared(cls, lambda model, cls=cls, how=how: history(model, cls, 2, **how))
    return found


@check
def initial_weights() -> dict[str, bool]:
    """Whether rank 0's weights are to the bit those of plain Keras: nothing is learnt."""

    class Still(PenalisedGan):
        def prepare(self, model: Any) -> None:
            model.compile(loss=None)
            model.own = {"critic": optimizers.SGD(0.0), "generator": optimizers.SGD(0.0)}

    class Called(keras.Model):
        """With a call, a loss, and random numbers in the step before and after the layers are built."""

        data = Vae.data

        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.second = layers.Dense(4), layers.Dropout(0.5), layers.Dense(2)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.second(self.drop(self.first(x), training=training))

        def prepare(self, model: Any) -> None:
            model.compile(optimizers.SGD(0.0), "mse")

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x + tf.random.normal(tf.shape(x)), training=True))
            update(self.optimizer, tape, loss, self.trainable_variables)
            return {"now": loss}

    return {cls.__name__: compared(cls, lambda m, cls=cls: history(m, cls))[0] == 0.0 for cls in (Still, Called)}


@check
def single_batches() -> list[Any]:
    """The test step makes the variables, and the training step the optimizer's, of a model without a call."""

    def train(model: Any) -> list[Any]:
        first = model.evaluate(batches(Vae), verbose=0, return_dict=True)
        logs = [model.train_on_batch(*(a[i : i + 7] for a in Vae.data), return_dict=True)["loss"] for i in (0, 7, 14)]
        return [*first.values(), *logs, model.predict(batches(Vae), verbose=0)]

    return compared(Vae, train)


@check
def compiled_again() -> list[Any]:
    """New optimizers, whose state begins anew; without a graph."""

    def train(model: Any) -> list[Any]:
        first = history(model, Gan)
        model.compile(optimizers.SGD(1e-2, momentum=0.9), optimizers.Adam(1e-3))
        model.run_eagerly = True
        return [*first, *history(model, Gan)]

    return compared(Gan, train)


@check
def other_kinds() -> dict[str, list[Any]]:
    """Of two optimizers the second clips its gradients; or it scales the loss, around one that accumulates them."""
    if LEGACY:
        kinds = {"clip": lambda: optimizers.legacy.Adam(1e-2, global_clipnorm=0.1)}
    else:
        accumulating = lambda: optimizers.Adam(1e-2, gradient_accumulation_steps=2)  # noqa: E731
        kinds = {"scale": lambda: keras.mixed_precision.LossScaleOptimizer(accumulating(), initial_scale=1.0)}
    found = {}
    for name, make in kinds.items():

        def train(model: Any, make: Any = make) -> list[Any]:
            model.own["critic"] = make()
            return history(model, PenalisedGan, 2)

        found[name] = compared(PenalisedGan, train)
    return found


@check
def state_of_all_optimizers() -> list[Any]:
    """Whether a checkpoint brings the state of both optimizers back, and rank 0's rate is everybody's in a new training."""
    model = made(Gan)
    history(model, Gan)
    both = (model.d_optimizer, model.g_optimizer)
    slots = [v for o in both for v in (o.variables() if callable(o.variables) else o.variables) if len(v.shape) > 0]
    before = [np.asarray(v) for v in slots]
    stored = state.collect(model.model, per_rank=True)
    for variable in slots:
        variable.assign(variable + 1.0 + RANK)
    state.restore(model.model, stored if RANK == 0 else None, common_seed=False, per_rank=True)
    restored = all(np.array_equal(a, np.asarray(v)) for a, v in zip(before, slots, strict=True))
    for optimizer in both:
        optimizer.learning_rate = 1e-3 * (1 + RANK)
    model.set_weights(model.get_weights())  # ranks begin alike again
    history(model, Gan)
    return [len(slots), restored, [float(np.asarray(o.learning_rate)) for o in both]]


@check
def variables_by_one_trace() -> list[float]:
    """How often a step that makes a variable is traced for that, and the variable."""
    made, traces = [], []

    def step(batch: Any) -> Any:
        traces.append(batch)
        if not made:
            made.append(tf.Variable(tf.fill([], 2.0)))
        return made[0] * batch

    building.trace_function(step, tf.TensorSpec([None]))
    return [len(traces), float(made[0])]


# -------------------------------------------------------------------------------------------------- what is refused


@check
def refused() -> dict[str, list[str]]:
    class WithUnused(Vae):
        def __init__(self) -> None:
            super().__init__()
            self.unused = layers.Dense(3, name="unused")

    class Assigning(Vae):
        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                _, total = self.losses_of(data)
            for v, g in zip(self.trainable_weights, tape.jacobian(total, self.trainable_weights), strict=True):
                v.assign(v - 0.01 * g)
            return {"loss": total}

    class Broken(Vae):
        def train_step(self, data: Any) -> Any:
            raise KeyError("something of the user's own")

    class Eager(Vae):
        def prepare(self, model: Any) -> None:
            model.compile(optimizer="sgd", run_eagerly=True)

        def train_step(self, data: Any) -> Any:
            return {"number": float(np.sum(self.encoder(data[0]).numpy()))}

    class Wrapped(PenalisedGan):
        def prepare(self, model: Any) -> None:
            super().prepare(model)
            model.own["critic"] = tnt.optimizers.Optimizer(optimizers.Adam())

    def fit(cls: Any) -> list[str]:
        return raised(made(cls).fit, batches(cls), verbose=0)

    return {cls.__name__: fit(cls) for cls in (WithUnused, Assigning, Broken, Eager, Wrapped)}


@check
def an_unused_layer_that_is_built() -> list[str]:
    class Built(Vae):
        def __init__(self) -> None:
            super().__init__()
            self.unused = net(3, inputs=2)

    return raised(made(Built).fit, batches(Built), verbose=0)


run(*sys.argv[1:])
