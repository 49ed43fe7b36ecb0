"""`TimeDistributed` in the versions of Keras where it takes the number of samples for that of time steps.

Keras 3.14 and 3.15 run the layer over the first B steps of a time axis of unknown length, where B is the size of the batch. So
an output depends on the size of the batch, and a rank would compute less than one device. Ranks compute what one device does,
with the size of the whole batch, and say what that is. Whether Keras does this is found out by trying it, once it matters.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError, mark
from tarantella.keras import adapter
from tarantella.keras.lengths import decision

_WAYS_OUT = (
    "give the time axis a known length (keras.Input((20, 4)), and padded_batch with padded_shapes), call the layer without "
    "TimeDistributed if it acts on the last axis as Dense does, or use another version of Keras"
)
_logged_places: set[str] = set()


def install() -> None:
    """Replaces the call of the layer. Once in a process."""
    layer = adapter.keras.layers.TimeDistributed
    original = layer.call

    @functools.wraps(original)
    def call(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if decision.is_open() and _has_unknown_length(inputs) and _counts_samples(original):
            return _over_batch_size(original, self, inputs, *args, **kwargs)
        return original(self, inputs, *args, **kwargs)

    layer.call = tf.autograph.experimental.do_not_convert(call)


def _has_unknown_length(inputs: Any) -> bool:
    return isinstance(inputs, tf.Tensor) and inputs.shape.rank is not None and inputs.shape[1] is None


def _over_batch_size(original: Callable[..., Any], layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    place = decision.place()
    what = (
        f"{place}: {adapter.version()} computes TimeDistributed over a time axis of unknown length for the first B time steps "
        "only, where B is the batch size"
    )
    if not _can_be_told(original):
        raise UnsupportedError(f"{what}, and a rank has a part of the batch. Plain Keras is wrong there as well: {_WAYS_OUT}")
    samples = decision.total(tf.shape(inputs, tf.int64)[0])
    if place not in _logged_places:
        _logged_places.add(place)
        runtime.logger.warning(
            "%s, also on one device: a fault of Keras. Ranks compute the same. To have all steps, %s", what, _WAYS_OUT
        )
    problem = f"{what}, and fails where there are fewer, on one device as well: {_WAYS_OUT}"
    check = tf.debugging.Assert(samples <= tf.shape(inputs, tf.int64)[1], [mark("TNT_UNSUPPORTED", problem)])
    with tf.control_dependencies([] if check is None else [check]):
        steps = tf.cast(samples, tf.int32)
    return _with_steps(original, steps)(layer, inputs, *args, **kwargs)


def _with_steps(original: Callable[..., Any], steps: int | tf.Tensor) -> Callable[..., Any]:
    """The layer's call over so many time steps: where it makes their numbers, it is given these."""
    return adapter.with_global(original, "ops", arange=lambda *_args, **_kwargs: tf.range(steps))


def _computed_steps(call: Callable[..., Any], samples: int, steps: int) -> int | None:
    """How many time steps the layer computes of an axis of unknown length; None if it fails."""
    layer = adapter.keras.layers.TimeDistributed(adapter.keras.layers.Activation("linear", name="inner"), name="outer")

    def output(inputs: tf.Tensor) -> tf.Tensor:
        return call(layer, inputs)

    try:
        with decision.entered(None, None), tf.init_scope():
            layer.build((None, None, 1))
            function = tf.function(output, autograph=False, input_signature=[tf.TensorSpec((None, None, 1))])
            return int(tf.shape(function(tf.zeros((samples, steps, 1))))[1])
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError):
        return None


@functools.cache
def _counts_samples(original: Callable[..., Any]) -> bool:
    return _computed_steps(original, samples=2, steps=4) == 2


@functools.cache
def _can_be_told(original: Callable[..., Any]) -> bool:
    """Whether `_with_steps` has the effect that it shall have."""
    return _computed_steps(_with_steps(original, 3), samples=2, steps=4) == 3
