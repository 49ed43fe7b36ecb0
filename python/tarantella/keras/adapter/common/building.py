"""The variables of a model whose training step is the user's own: only the step itself knows what it uses of the model."""

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras.adapter.common.optimizers import held_optimizers
from tarantella.keras.adapter.common.python_state import Attributes, RandomNumbers, number_of_weights
from tarantella.keras.adapter.front_end import LEGACY, keras
from tarantella.runtime import logger

_traced: dict[str, weakref.WeakSet[Any]] = {}  # for each step, the optimizers of the models that were built by it


def is_overridden(model: Any, step: str) -> bool:
    """Whether a method of the model, such as ``"train_step"``, is the user's own."""
    return getattr(getattr(model, step), "__func__", None) is not getattr(keras.Model, step)


def was_traced(model: Any, step: str) -> bool:
    """Whether the model was built by this step since it was compiled."""
    optimizers = held_optimizers(model)
    return bool(optimizers) and all(optimizer in _traced.get(step, ()) for optimizer in optimizers)


def builds_all(model: Any, call: Callable[[], None]) -> bool:
    """Whether a call of the model makes the weights of all layers. It may end in any error."""
    return succeeds(call) and not unbuilt_layers(model)


def succeeds(call: Callable[[], object]) -> bool:
    """Whether a call of the model, which may end in any error, does not."""
    try:
        call()
    except Exception as error:
        logger.info("the model's variables are made by tracing its step, because calling it failed: %s", error)
        return False
    return True


def trace(model: Any, step: str, batch_spec: Any) -> None:
    """Makes all that the step creates, as its first run would: the step is traced for a graph that is thrown away.

    Raises:
        UnsupportedError: layers are left without their weights. Any other error is that of the step.
    """
    try:
        with _optimizers_built_outside(held_optimizers(model)):
            trace_function(getattr(model, step), batch_spec)
    except Exception as error:
        if not model.run_eagerly:
            raise
        if unbuilt_layers(model):  # else only states of optimizers are missing, which begin alike on all ranks
            raise UnsupportedError(_refusal(model, f"its {step} cannot be traced before it runs ({error})")) from error
    _traced.setdefault(step, weakref.WeakSet()).update(held_optimizers(model))
    if unbuilt_layers(model):
        raise UnsupportedError(_refusal(model, f"its {step} does not use it"))


def leaving_python_state(build: Callable[..., None]) -> Callable[..., None]:
    """A function that makes a model's variables, and that restores what the user's layers and steps change in Python meanwhile.

    Random states stay as they are if weights were made, because their initial values may have been drawn. Legacy Keras traces
    a step twice itself unless it runs eagerly, because the first trace makes variables: there nothing is restored.
    """

    @functools.wraps(build)
    def leaving(model: Any, *args: Any, **kwargs: Any) -> None:
        if LEGACY and not model.run_eagerly:
            return build(model, *args, **kwargs)
        attributes = Attributes([*model._flatten_layers(), *held_optimizers(model)])
        numbers, weights = RandomNumbers(), number_of_weights(model)
        try:
            build(model, *args, **kwargs)
        finally:
            attributes.restore()
            if number_of_weights(model) == weights:
                numbers.restore()

    return leaving


@contextmanager
def _optimizers_built_outside(optimizers: Sequence[Any]) -> Iterator[None]:
    """In this context the optimizers' state is made outside of the graph that is traced.

    State that begins as the weights, such as that of ScheduleFreeAdamW, would be assigned in the graph, which never runs. The
    oldest optimizers of legacy Keras have no `build`.
    """
    built = [optimizer for optimizer in optimizers if hasattr(optimizer, "build")]
    own = [(optimizer, optimizer.__dict__.get("build"), optimizer.build) for optimizer in built]
    for optimizer, _, build in own:
        object.__setattr__(optimizer, "build", _outside(build))
    try:
        yield
    finally:
        for optimizer, before, _ in own:
            if before is None:
                object.__delattr__(optimizer, "build")
            else:
                object.__setattr__(optimizer, "build", before)


def _outside(build: Callable[..., Any]) -> Callable[..., Any]:
    def build_outside(*args: Any, **kwargs: Any) -> Any:
        with tf.init_scope():
            return build(*args, **kwargs)

    return build_outside


def _refusal(model: Any, why: str) -> str:
    names = [layer.name for layer in unbuilt_layers(model)]
    others = f" (and {len(names) - 1} others)" if len(names) > 1 else ""
    return (
        f"the layer {names[0]!r}{others} of the model {model.name!r} has no weights yet, and {why}: the ranks could not begin "
        "alike. Build it before: give it an Input, or call the model or this part of it once on a batch"
    )


def unbuilt_layers(model: Any) -> list[Any]:
    """The layers that would make weights at their first call and have not been called yet, without the models around them."""
    without_weights = (keras.layers.Layer.build, keras.layers.Dropout.build)  # that of legacy Keras makes a generator
    found = []
    for layer in model._flatten_layers():
        is_container = isinstance(layer, (keras.Model, keras.metrics.Metric))
        if not layer.built and not is_container and type(layer).build not in without_weights:
            found.append(layer)
    return found


class _MadeVariables(Exception):
    """The first trace has made variables, and all that it makes is there."""


def trace_function(step: Callable[[Any], Any], batch_spec: Any) -> None:
    """Traces a function of a batch, which makes the variables that it creates.

    TensorFlow traces a function that has made variables once more, for a graph without their initialisation. That takes as long
    as the first trace and makes nothing, so it is cut short.
    """
    traces = 0

    def traced(batch: Any) -> None:
        nonlocal traces
        traces += 1
        if traces > 1:
            raise _MadeVariables
        step(batch)

    with suppress(_MadeVariables):
        tf.function(traced).get_concrete_function(tf.nest.map_structure(any_batch_size, batch_spec))


def any_batch_size(spec: Any) -> Any:
    """The spec for batches of any size: a Sequential model would remember the size and save it."""
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) and spec.shape.rank else spec
