"""Collectives on tensors by their rows, of which each rank may have or get another number.

`gathered`, `exchanged` and `scattered` are the collectives alone. `all_gather`, `all_to_all` and `reduce_scatter` are the
public functions, with the gradients that `tnt.DistributedGradientTape` and steps of `tnt.Model` need.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.collectives import wire
from tarantella.collectives.group import Group
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.reduction import collectives


def as_rows(tensor: Any, what: str) -> tf.Tensor:
    """A tensor that has rows. Raises ValueError if it is a scalar, TypeError if it has other things than numbers."""
    x = tf.convert_to_tensor(adapter.unwrap(tensor))
    if x.shape.rank == 0:
        raise ValueError(f"{what} of a tensor puts rows one after another: a scalar has none, use tensor[tf.newaxis]")
    if not (x.dtype.is_floating or x.dtype.is_integer or x.dtype.is_bool or x.dtype.is_complex):
        raise TypeError(f"{what}: cannot send elements of type {x.dtype.name}: use numbers or booleans")
    return x


def gathered(x: tf.Tensor, group: Group | None = None, name: str = "") -> tuple[tf.Tensor, tf.Tensor]:
    """All members' rows one after another, and how many each has. Collective on the group.

    Args:
        x: of the same type and shape, but for the number of rows, on all members.
        name: of the tensor, which must be the same on all members.
    """
    rows, numbers = collectives.run("tnt_all_gather_rows", x, group=group, tensor=name)
    return tf.ensure_shape(rows, _any_rows(x)), tf.ensure_shape(numbers, [_size(group)])


def exchanged(x: tf.Tensor, splits: Any, group: Group | None = None, name: str = "") -> tuple[tf.Tensor, tf.Tensor]:
    """The rows that the members sent to this one, and how many each has sent. Collective on the group.

    Args:
        splits: how many of x's rows go to each member; None for equally many.
    """
    numbers = tf.zeros([0], tf.int64) if splits is None else tf.cast(tf.convert_to_tensor(splits), tf.int64)
    rows, received = collectives.run("tnt_all_to_all_rows", x, numbers, group=group, tensor=name)
    return tf.ensure_shape(rows, _any_rows(x)), tf.ensure_shape(received, [_size(group)])


def scattered(x: tf.Tensor, op: str, group: Group | None = None, name: str = "") -> tuple[tf.Tensor, tf.Tensor]:
    """This member's rows of the reduction over the members, and how many each gets. Collective on the group."""
    wire.element_type(x.dtype.name)  # or an error
    operation = int(wire.operation(op))
    rows, numbers = collectives.run("tnt_reduce_scatter_rows", x, group=group, op=operation, tensor=name)
    return tf.ensure_shape(rows, _any_rows(x)), tf.ensure_shape(numbers, [_size(group)])


def _any_rows(x: tf.Tensor) -> tf.TensorShape:
    return tf.TensorShape(None) if x.shape.rank is None else tf.TensorShape([None, *x.shape[1:]])


def _size(group: Group | None) -> int:
    return runtime.get_size() if group is None else group.size


# ---------------------------------------------------------------------------------------------------- with gradients


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def all_gather(tensor: Any) -> tf.Tensor:
    """`tnt.all_gather` of a tensor: see there."""
    context.refuse_in_shards("tnt.all_gather of a tensor")
    x = as_rows(tensor, "tnt.all_gather")
    own = _rows_that_count(x)
    rank = runtime.get_rank()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gather(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        rows, numbers = gathered(x[:own])

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            summed = divided(collectives.total(multiplied(tf.convert_to_tensor(upstream))))
            before = tf.reduce_sum(numbers[:rank])
            part = summed[before : before + own]
            unused = tf.zeros(tf.concat([[tf.shape(x, tf.int64)[0] - own], tf.shape(x, tf.int64)[1:]], 0), x.dtype)
            return tf.ensure_shape(tf.concat([part, unused], 0), x.shape)

        return rows, gradient

    return gather(x)


def _rows_that_count(x: tf.Tensor) -> tf.Tensor:
    """The number of rows of this rank: none, if this rank has no sample in a step of `tnt.Model` and runs on one of others."""
    rows, weight = tf.shape(x, tf.int64)[0], context.weight()
    return rows if weight is None else tf.where(weight > 0, rows, 0)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def all_to_all(tensor: Any, splits: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
    """`tnt.all_to_all` of a tensor: see there."""
    context.refuse_in_shards("tnt.all_to_all")
    x = as_rows(tensor, "tnt.all_to_all")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def exchange(x: tf.Tensor) -> tuple[Any, Callable[..., tf.Tensor]]:
        rows, received = exchanged(x, splits)

        def gradient(upstream: tf.Tensor, _received_upstream: Any = None) -> tf.Tensor:
            back, _ = exchanged(multiplied(tf.convert_to_tensor(upstream)), received)
            return tf.ensure_shape(divided(back), x.shape)

        return (rows, received), gradient

    rows, received = exchange(x)
    return rows, received


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def reduce_scatter(tensor: Any, op: str) -> tf.Tensor:
    """`tnt.reduce_scatter` of a tensor: see there."""
    context.refuse_in_shards("tnt.reduce_scatter")
    x = as_rows(tensor, "tnt.reduce_scatter")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scatter(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if op not in ("sum", "avg"):
                raise UnsupportedError(f"tnt.reduce_scatter(op={op!r}) has no gradient: use 'sum' or 'avg'")
            back, _ = gathered(multiplied(tf.convert_to_tensor(upstream)))
            factor = 1.0 if op == "sum" else 1.0 / runtime.get_size()
            return tf.ensure_shape(divided(back) * tf.cast(factor, x.dtype), x.shape)

        return scattered(x, op)[0], gradient

    return scatter(x)


# The ranks' losses are summed up with weights, so what rank p sends to rank q counts as much as p. Rank q's gradients get the
# weight of q later, so they are divided by it here.


def multiplied(upstream: tf.Tensor) -> tf.Tensor:
    """The gradient times this rank's weight, in a step that has one."""
    weight = context.weight()
    if weight is None:
        return upstream
    factor = tf.cast(weight, upstream.dtype)
    return tf.where(factor > 0, upstream * factor, tf.zeros_like(upstream))


def divided(gradient: tf.Tensor) -> tf.Tensor:
    """The gradient divided by this rank's weight, in a step that has one."""
    weight = context.weight()
    return gradient if weight is None else tf.math.divide_no_nan(gradient, tf.cast(weight, gradient.dtype))
