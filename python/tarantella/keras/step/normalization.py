"""BatchNormalization over the samples of all ranks, for every layer that is made with ``synchronized=True``."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, context
from tarantella.keras.reduction import collectives, rows


def is_synchronized(layer: Any) -> bool:
    """Whether the layer is to take its statistics over all ranks."""
    return isinstance(layer, adapter.keras.layers.BatchNormalization) and bool(layer.synchronized)


def hooks(model: Any) -> list[tuple[Any, str, Callable[..., Any]]]:
    """The methods of the model's synchronized layers to replace in a training step, with their replacements."""
    name = adapter.batch_statistics()
    layers = [layer for layer in adapter.layers_of(model) if is_synchronized(layer)]
    return [(layer, name, adapter.with_statistics(layer, moments)) for layer in layers]


def statistics(model: Any) -> list[Any]:
    """The weights in which synchronized layers keep averages over all ranks."""
    return [v for layer in adapter.layers_of(model) if is_synchronized(layer) for v in layer.non_trainable_weights]


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def moments(x: tf.Tensor, axes: Sequence[int], keepdims: bool = False, mask: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over the samples of all ranks, with their gradients. Collective: two sums forward, two backward.

    Args:
        x: this rank's samples, float.
        axes: the axes over which the statistics are taken.
        mask: of x's shape without its last axis; elements where it is false do not count.

    Each rank's elements count alike. A rank without a sample in a step of `tnt.Model` does not count; elsewhere such a rank
    cannot be known. The gradient is that of the sum of all ranks' losses, weighted as in the step or in
    `DistributedGradientTape.gradient`; outside of both, all ranks count alike.
    """
    if mask is None and runtime.get_size() == 1:
        mean, variance = tf.nn.moments(x, axes, keepdims=keepdims)
        return mean, variance
    if mask is None:
        counted = tf.ones([], x.dtype)
        count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(x), list(axes))), x.dtype)
    else:
        counted = tf.cast(mask, x.dtype)[..., tf.newaxis]
        count = tf.reduce_sum(counted)
    weight = context.weight()
    if weight is not None:
        present = tf.cast(weight > 0, x.dtype)
        counted, count = counted * present, count * present
    sums = tf.reduce_sum(x * counted, list(axes), keepdims=True)
    totals = _sum_over_ranks(tf.concat([tf.reshape(sums, [-1]), [count]], 0))
    total = tf.stop_gradient(totals[-1])
    mean = tf.math.divide_no_nan(tf.reshape(totals[:-1], tf.shape(sums)), total)
    # deviations from the mean add up to zero over all ranks, and so does their gradient with respect to the mean
    squares = tf.reduce_sum(tf.square(x - tf.stop_gradient(mean)) * counted, list(axes), keepdims=True)
    variance = tf.math.divide_no_nan(_sum_over_ranks(squares), total)
    mean, variance = tf.ensure_shape(mean, sums.shape), tf.ensure_shape(variance, sums.shape)
    if keepdims:
        return mean, variance
    return tf.squeeze(mean, list(axes)), tf.squeeze(variance, list(axes))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _sum_over_ranks(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """The sum. Its gradient is the sum of all ranks' gradients, weighted, divided by this rank's own weight."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return rows.divided(collectives.all_reduce(rows.multiplied(upstream), "sum"))

    return collectives.all_reduce(x, "sum"), gradient


# ---------------------------------------------------------------------------------------- statistics of each rank's own part

MIN_SAMPLES = 16  # on each rank: BatchNormalization works well with so many samples
_warned_models: weakref.WeakSet[Any] = weakref.WeakSet()  # the models


def warn_of_local_statistics(model: Any, batch_size: int | None, shards: int | None = None) -> None:
    """Warns of layers that take their statistics over a part of the batch: each time of small parts, else once for a model.

    Args:
        batch_size: of all ranks together; None if it is not known.
        shards: the number of parts of a batch; None: one for each rank.
    """
    local = [
        layer
        for layer in adapter.layers_of(model)
        if isinstance(layer, adapter.keras.layers.BatchNormalization) and layer.trainable and not layer.synchronized
    ]
    if not local:
        return
    parts, what = (runtime.get_size(), "rank") if shards is None else (shards, "shard")
    remedy = "" if shards else ". tnt.keras.layers.SyncBatchNormalization takes its statistics over the whole batch"
    if batch_size is not None and batch_size // parts < MIN_SAMPLES:
        _warned_models.add(model)
        runtime.logger.warning(
            "Micro batch size should be at least %d when using Batch Normalization: %d %ss share %d samples%s",
            MIN_SAMPLES,
            parts,
            what,
            batch_size,
            remedy,
        )
    elif model not in _warned_models:
        _warned_models.add(model)
        runtime.logger.warning(
            "%s%s: Batch Normalization takes its statistics over the samples of each %s, so results differ from those of one "
            "device%s",
            local[0].name,
            f" and {len(local) - 1} others" if len(local) > 1 else "",
            what,
            remedy,
        )
