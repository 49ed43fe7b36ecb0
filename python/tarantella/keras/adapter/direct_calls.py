"""Calls of what Keras has traced, without TensorFlow's search for the trace in each step.

TensorFlow finds the trace by a hash of all that it captures: with 1200 variables a millisecond, in each step. The steps of an
epoch take their batches from one iterator, so they have one trace.
"""

import types
import weakref
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.one_element import OneElement

_TRACED = "multi_step_on_iterator"  # as Keras 3.7 and later name it in the function that they call


class DirectCalls:
    """Calls a traced function of an iterator. It searches for the trace when the iterator is another one.

    It is made for a loop over the steps of an epoch: there nothing but the iterator decides on the trace.
    """

    def __init__(self, traced: tf.types.experimental.PolymorphicFunction) -> None:
        self._traced = traced
        self._of: Any = lambda: None  # gives what the last call had
        self._trace: Any = None  # of calls with it

    def __call__(self, iterator: Any) -> Any:
        if tf.config.functions_run_eagerly():
            return self._traced(iterator)
        of = iterator.elements if isinstance(iterator, OneElement) else iterator
        if self._of() is not of:  # variables may be created, so that the first trace is not the last
            self._of, self._trace = weakref.ref(of), None
            return self._traced(iterator)
        if self._trace is None:
            self._trace = self._traced.get_concrete_function(iterator)
        return self._trace(iterator)


def called_directly(function: Any) -> Any:
    """Keras' function of training or test steps, but that it calls what it has traced directly; itself if it traces nothing."""
    if isinstance(function, tf.types.experimental.PolymorphicFunction):
        return DirectCalls(function)
    if not isinstance(function, types.FunctionType) or _TRACED not in function.__code__.co_freevars:
        return function
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    traced = cells[_TRACED].cell_contents
    if not isinstance(traced, tf.types.experimental.PolymorphicFunction):
        return function  # the steps run eagerly
    cells[_TRACED] = types.CellType(DirectCalls(traced))
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells.values())
    )
