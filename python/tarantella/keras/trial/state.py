"""What a run of a model changes, which a trial restores: variables, generators of random numbers, attributes in Python."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import VARIABLE_WRITES, is_own, operation_seeds, variable_class
from tarantella.keras.step import noise

_SEED = 20


@contextmanager
def leaving_no_trace(variables: Sequence[Any], owners: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """In this context nothing communicates, and random numbers are constant. What runs change is restored.

    Args:
        variables: those that runs may change. So are others that somebody writes to by their methods.
        owners: objects whose attributes they may change.

    Yields:
        A function that restores all but random states, for another run inside the context.
    """
    attributes = adapter.Attributes(owners)
    values = _Values([*variables, *adapter.common_seed_variables()])

    def restore() -> None:
        values.restore()
        attributes.restore()

    seeds, numbers = operation_seeds(), adapter.RandomNumbers()
    operation_state = None if seeds is None else seeds.getstate()
    if seeds is not None:
        seeds.seed(_SEED)  # other seeds than the program's: TensorFlow would go on with generators that have one of them
    try:
        with context.trial(), noise.constant_noise(), _restoring_generators(), _noting_writes(values):
            yield restore
    finally:
        numbers.restore()
        if seeds is not None and operation_state is not None:
            seeds.setstate(operation_state)
        restore()


class _Values:
    """The values that variables had. Nothing is copied: TensorFlow makes a copy if a variable is written to meanwhile.

    Args:
        variables: of TensorFlow or Keras, the first ones.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self._before = {id(v): (v, _value(v)) for v in map(adapter.unwrap, variables)}

    def note(self, variable: tf.Variable) -> None:
        """Keeps its value too, if it has one. In a graph that is traced this is the one from before the graph runs."""
        if id(variable) in self._before or is_own(variable):
            return
        with tf.init_scope():
            if variable.is_initialized():  # not if a function is traced that makes it
                self._before[id(variable)] = variable, _value(variable)

    def restore(self) -> None:
        """Gives all of them these values."""
        for variable, value in self._before.values():
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def _value(variable: tf.Variable) -> Any:
    """Its value. The operation itself takes a fifth of the time of `read_value`, which also asks tapes and distribution."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _noting_writes(values: _Values) -> AbstractContextManager[None]:
    """In this context values are noted of variables that are written to, before they are: a script may hold them anywhere."""
    return _before_methods([(variable_class(), name) for name in VARIABLE_WRITES], values.note)


@contextmanager
def _restoring_generators() -> Iterator[None]:
    """Each random generator that draws in this context has its state back afterwards, whoever holds it.

    Not for another run inside the context: it shows in two runs that there are random numbers.
    """
    before: dict[int, tuple[Any, Any]] = {}
    methods = [(tf.random.Generator, "skip"), (tf.random.Generator, "binomial")]  # what advances the state
    if hasattr(adapter.keras, "random"):  # not in legacy Keras
        methods.append((adapter.keras.random.SeedGenerator, "next"))

    def note(generator: Any) -> None:
        state = adapter.unwrap(generator.state)
        if id(state) not in before:
            with tf.init_scope():
                before[id(state)] = state, np.array(state)  # a copy: some operations write to a state in its place

    try:
        with _before_methods(methods, note):
            yield
    finally:
        for state, value in before.values():
            state.assign(value)


@contextmanager
def _before_methods(methods: Sequence[tuple[type, str]], note: Callable[[Any], None]) -> Iterator[None]:
    """In this context ``note`` gets each object before one of these methods of its class is called."""

    def noting(method: Any) -> Any:
        @functools.wraps(method)
        def noted(owner: Any, *args: Any, **kwargs: Any) -> Any:
            note(owner)
            return method(owner, *args, **kwargs)

        return tf.autograph.experimental.do_not_convert(noted)

    inherited = object()
    own = [vars(owner).get(name, inherited) for owner, name in methods]
    for owner, name in methods:
        setattr(owner, name, noting(getattr(owner, name)))
    try:
        yield
    finally:
        for (owner, name), method in zip(methods, own, strict=True):
            if method is inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, method)


def losses_of(model: Any) -> list[Any]:
    """The losses that a built model was compiled with, as objects."""
    found: list[Any] = []
    adapter.loss_hooks(model, found.append)
    return found


def owners_of(model: Any) -> list[Any]:
    """The objects that hold what a step of the model may change."""
    losses = [function for loss in losses_of(model) for function in (loss, getattr(loss, "fn", loss))]
    return [*adapter.layers_of(model), *adapter.held_optimizers(model), *adapter.given_metrics(model), *losses]


def state_of(model: Any) -> list[Any]:
    """The variables that a step of the model may change."""
    variables = [*adapter.variables(model), *adapter.metric_variables(model), *adapter.seed_variables(model)]
    metric_variables = [variable for metric in adapter.given_metrics(model) for variable in metric.variables]
    held = adapter.variables_in(owners_of(model))
    return [*variables, *metric_variables, *adapter.whole_optimizer_variables(model), *held]
