"""The models that a training loop calls, tried on what it gives them: does an output depend on other samples of a rank's batch?

Such a loop shows nothing else. Its loss is the user's own, and so is the choice of each rank's samples. Tapes and optimizers of
ours watch the calls of layers from the time when they are made. When they reduce the gradients of a model that was called, the
model is tried, once: eagerly at once. A graph keeps what the model is given in its first run, and the trial comes before the
next call of any function. Nothing is communicated, nothing is changed, and a warning is all that follows.
"""

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import generations, runtime, settings
from tarantella.keras import adapter, context
from tarantella.keras.adapter.random_operations import trace_apart
from tarantella.keras.reduction import device_placement
from tarantella.keras.step import normalization, unwrapped_models
from tarantella.keras.trial import forward
from tarantella.keras.trial.comparison import NotComparable
from tarantella.keras.trial.declared import is_declared

_MAX_BYTES = 1 << 28  # of what a model is given in a graph, which would be copied


@dataclass
class _Call:
    """A call of a model in a loop.

    Attributes:
        given: its arguments, with `_TENSOR` in the place of each tensor.
        tensors: these tensors, or arrays.
        graph: where it was called; None: eagerly.
    """

    model: weakref.ref[Any]
    given: Any
    tensors: list[Any]
    graph: Any

    def repeated(self, model: Any, tensors: Sequence[Any]) -> Any:
        """What the model gives for other tensors in the place of these."""
        values = iter(tensors)
        args, kwargs = tf.nest.map_structure(lambda leaf: next(values) if leaf is _TENSOR else leaf, self.given)
        return model(*args, **kwargs)


_TENSOR = object()  # in the place of each tensor


class _ThreadCalls(threading.local):
    """The calls of this thread's loops since gradients were reduced, by the ids of models."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: dict[int, _Call] = {}


_thread_calls = _ThreadCalls()
_tried_models: weakref.WeakSet[Any] = weakref.WeakSet()
_numbers = itertools.count()
_waiting_trials: list[Callable[[], None]] = []  # trials on what was kept in a graph, which wait for the graph's end


@functools.cache
def install() -> None:
    """Watches the calls of layers from now on. Once in a process, and only in one of several ranks."""
    if (runtime.get_size() == 1 and not generations.is_elastic()) or settings.trials() == "off":
        return
    layers, original = adapter.keras.layers.Layer, adapter.keras.layers.Layer.__call__

    @functools.wraps(original)  # so that AutoGraph takes it for Keras' own
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _thread_calls.depth == 0:
            _note(self, args, kwargs)
        _thread_calls.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _thread_calls.depth -= 1

    layers.__call__ = call
    trace_apart(_try_what_was_kept)


def _note(model: Any, args: Any, kwargs: Any) -> None:
    if model in _tried_models or context.in_model_step() or context.in_trial() or unwrapped_models.is_internal_call():
        return
    leaves = tf.nest.flatten((args, kwargs))
    are_tensors = [isinstance(leaf, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor, np.ndarray)) for leaf in leaves]
    if any(are_tensors):
        given = [_TENSOR if is_tensor else leaf for leaf, is_tensor in zip(leaves, are_tensors, strict=True)]
        tensors = [leaf for leaf, is_tensor in zip(leaves, are_tensors, strict=True) if is_tensor]
        packed = tf.nest.pack_sequence_as((args, kwargs), given)
        _thread_calls.calls[id(model)] = _Call(weakref.ref(model), packed, tensors, context.graph())


def try_out(variables: Sequence[Any]) -> None:
    """Tries the models that were called and have some of these variables, whose gradients are being reduced."""
    calls, _thread_calls.calls = _thread_calls.calls, {}
    reduced = {id(adapter.unwrap(variable)) for variable in variables}
    for call in calls.values():
        model = call.model()
        if model is None or call.graph is not context.graph():
            continue
        if reduced.isdisjoint(id(adapter.unwrap(variable)) for variable in adapter.trainable_variables(model)):
            continue
        tensors = [tensor if tf.is_tensor(tensor) else tf.constant(tensor) for tensor in call.tensors]
        if call.graph is None:
            _try(call, tensors, None)
        else:
            _keep(call, tensors)


def _try(call: _Call, tensors: Sequence[Any], spec: Sequence[Any] | None) -> None:
    model = call.model()
    if model is None or model in _tried_models or is_declared(model.call):
        return
    _tried_models.add(model)
    if call.given[1].get("training") is True:
        normalization.warn_of_local_statistics(model, None)
    rows = [place for place, tensor in enumerate(tensors) if tensor.shape.rank]  # others are numbers for all samples

    def run(row_tensors: Sequence[Any]) -> Any:
        given = dict(zip(rows, row_tensors, strict=True))
        return call.repeated(model, [given.get(place, tensor) for place, tensor in enumerate(tensors)])

    try:
        with unwrapped_models.internal_call(), tf.init_scope():  # past the tapes that are open
            row_tensors = [tensors[place] for place in rows]
            said = forward.coupling(model, run, row_tensors, None if spec is None else [spec[place] for place in rows])
    except Exception as error:  # a model may refuse to be called on few samples in any way
        text = str(error) if isinstance(error, (NotComparable, context.RefusedInTrial)) else f"{type(error).__name__}: {error}"
        runtime.logger.info("%s is not tried on parts of a batch: %s", model.name, text)
        return
    if said:
        runtime.logger.warning(
            "%s. Each rank computes it from its own batch, so a loop gives other results than one device. To mend it, pad to a "
            "length that is the same for all batches, or bring what all samples have in common together by tnt.all_reduce or "
            "tnt.all_gather inside the layer. If that is meant, or the rows are no samples, decorate the model's call with "
            "@tnt.independent_samples, or set TNT_TRIALS=off",
            said,
        )


# --------------------------------------------------------------------------------------------------------- in a graph


def _keep(call: _Call, tensors: Sequence[Any]) -> None:
    """Adds to the graph what keeps these tensors in its first run, for a trial after it."""
    spec = [tf.type_spec_from_value(tensor) for tensor in tensors]

    def note(*flat: Any) -> bool:
        if sum(np.asarray(part).nbytes for part in flat) <= _MAX_BYTES:
            parts = tf.nest.pack_sequence_as(spec, [*map(tf.constant, flat)], expand_composites=True)
            _waiting_trials.append(lambda: _try(call, parts, spec))
        return True

    with device_placement.on_host():
        # no tf.Variable: a function may make none after its first trace
        is_kept = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=f"tnt_is_kept_{next(_numbers)}")

        def keep() -> tf.Tensor:
            tf.raw_ops.AssignVariableOp(resource=is_kept, value=tf.constant(True))
            return tf.numpy_function(note, tf.nest.flatten(tensors, expand_composites=True), tf.bool)

        tf.cond(tf.raw_ops.VarIsInitializedOp(resource=is_kept), lambda: tf.constant(True), keep)


def _try_what_was_kept() -> None:
    """Runs where TensorFlow asks for the marks of a function that is called: the graph before has ended."""
    while _waiting_trials and tf.executing_eagerly() and not context.in_trial():
        _waiting_trials.pop(0)()
