"""What a run of a model changes, which a trial restores: variables, generators of random numbers, metrics."""

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import operation_seeds
from tarantella.keras.step import noise

_SEED = 20


@contextmanager
def leaving_no_trace(variables: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """In this context nothing communicates, and random numbers are constant. Variables and random states are restored.

    Yields:
        A function that gives the variables their values from before, for another run inside the context.
    """
    variables = list({id(v): v for v in (*variables, *adapter.common_seed_variables())}.values())
    unwrapped = [adapter.unwrap(v) for v in variables]
    before = [_value(v) for v in unwrapped]  # no copies: TensorFlow makes one if the variable is written to

    def restore() -> None:
        for variable, value in zip(unwrapped, before, strict=True):
            _set(variable, value)

    seeds, python_state, numpy_state = operation_seeds(), random.getstate(), np.random.get_state()
    operation_state = None if seeds is None else seeds.getstate()
    if seeds is not None:
        seeds.seed(_SEED)  # other seeds than the program's: TensorFlow would go on with generators that have one of them
    try:
        with context.trial(), noise.constant_noise(), _restoring_generators():
            yield restore
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if seeds is not None and operation_state is not None:
            seeds.setstate(operation_state)
        restore()


def _value(variable: tf.Variable) -> Any:
    """Its value. The operation itself takes a fifth of the time of `read_value`, which also asks tapes and distribution."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _set(variable: tf.Variable, value: Any) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


@contextmanager
def _restoring_generators() -> Iterator[None]:
    """Each random generator that draws in this context has its state back afterwards, whoever holds it."""
    before: dict[int, tuple[Any, Any]] = {}
    methods = [(tf.random.Generator, "skip"), (tf.random.Generator, "binomial")]  # what advances the state
    if hasattr(adapter.keras, "random"):  # not in legacy Keras
        methods.append((adapter.keras.random.SeedGenerator, "next"))
    originals = [getattr(owner, name) for owner, name in methods]

    def noting(method: Any) -> Any:
        @functools.wraps(method)
        def noted(generator: Any, *args: Any, **kwargs: Any) -> Any:
            state = adapter.unwrap(generator.state)
            if id(state) not in before:
                with tf.init_scope():
                    before[id(state)] = state, np.array(state)  # a copy: some operations write to a state in its place
            return method(generator, *args, **kwargs)

        return tf.autograph.experimental.do_not_convert(noted)

    for (owner, name), method in zip(methods, originals, strict=True):
        setattr(owner, name, noting(method))
    try:
        yield
    finally:
        for (owner, name), method in zip(methods, originals, strict=True):
            setattr(owner, name, method)
        for state, value in before.values():
            state.assign(value)


def losses_of(model: Any) -> list[Any]:
    """The losses that a built model was compiled with, as objects."""
    found: list[Any] = []
    adapter.loss_hooks(model, found.append)
    return found


def state_of(model: Any) -> list[Any]:
    """The variables that a step of the model may change."""
    owners = [*adapter.layers_of(model), *adapter.held_optimizers(model), *adapter.given_metrics(model)]
    losses = [function for loss in losses_of(model) for function in (loss, getattr(loss, "fn", loss))]
    variables = [*adapter.variables(model), *adapter.metric_variables(model), *adapter.seed_variables(model)]
    metric_variables = [variable for metric in adapter.given_metrics(model) for variable in metric.variables]
    return [*variables, *metric_variables, *adapter.whole_optimizer_variables(model), *adapter.variables_in([*owners, *losses])]
