"""Collectives on tensors and variables of TensorFlow and Keras, in graphs and eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella import runtime
from tarantella.collectives import wire
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.reduction import communicator, graph_order, ops, weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def all_reduce(tensor: Any, op: str) -> tf.Tensor:
    """`tnt.all_reduce` of a tensor: see there."""
    x = tf.convert_to_tensor(adapter.unwrap(tensor))
    wire.element_type(x.dtype.name)  # or an error
    operation = wire.operation(op)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if op not in ("sum", "avg"):
                raise UnsupportedError(f"tnt.all_reduce(op={op!r}) has no gradient: use 'sum' or 'avg', or tf.stop_gradient")
            return all_reduce(upstream, op)

        return _run("tnt_all_reduce", x, op=int(operation)), gradient

    return reduced(x)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def all_gather(tensor: Any) -> tf.Tensor:
    """`tnt.all_gather` of a tensor: see there."""
    x = tf.convert_to_tensor(adapter.unwrap(tensor))
    context.refuse_in_shards("tnt.all_gather of a tensor")
    if x.shape.rank == 0:
        raise ValueError("tnt.all_gather of a tensor puts rows one after another: a scalar has none, use tensor[tf.newaxis]")
    if x.dtype == tf.bool:
        return tf.cast(all_gather(tf.cast(x, tf.uint8)), tf.bool)
    wire.element_type(x.dtype.name)  # or an error
    own = _rows_that_count(x)
    size, rank = runtime.get_size(), runtime.get_rank()
    rows = total(tf.one_hot(rank, size, on_value=own, off_value=tf.constant(0, tf.int64), dtype=tf.int64))
    before = tf.reduce_sum(rows[:rank])
    after = tf.reduce_sum(rows[rank + 1 :])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gathered(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            of_all = _sum_of_weighted(tf.convert_to_tensor(upstream))
            part = of_all[before : before + own]
            unused = tf.zeros(tf.concat([[tf.shape(x, tf.int64)[0] - own], tf.shape(x, tf.int64)[1:]], 0), x.dtype)
            return tf.ensure_shape(tf.concat([part, unused], 0), x.shape)

        # zeros stand where the rows of other ranks belong: the sum changes no number
        padding = [[before, after], *([tf.constant(0, tf.int64)] * 2 for _ in range(x.shape.rank - 1))]
        result = total(tf.pad(x[:own], padding))
        return tf.ensure_shape(result, [None, *x.shape[1:]]), gradient

    return gathered(x)


def _rows_that_count(x: tf.Tensor) -> tf.Tensor:
    """The number of rows of this rank: none, if this rank has no sample in a step of `tnt.Model` and runs on one of others."""
    rows, weight = tf.shape(x, tf.int64)[0], context.weight()
    return rows if weight is None else tf.where(weight > 0, rows, 0)


def _sum_of_weighted(upstream: tf.Tensor) -> tf.Tensor:
    """The sum over ranks of gradients. Where they will be weighted, this rank's result is one that its own weight makes right.

    The ranks' losses are summed up with weights, so what rank p sends to rank q counts as much as p. Rank q's gradients get the
    weight of q later.
    """
    weight = context.weight()
    if weight is None:
        return total(upstream)
    factor = tf.cast(weight, upstream.dtype)
    own = tf.where(factor > 0, upstream * factor, tf.zeros_like(upstream))
    return tf.math.divide_no_nan(total(own), factor)


def total(numbers: Any) -> tf.Tensor:
    """The sum over ranks of the few numbers that a step needs beside gradients; has no gradient itself. Collective."""
    return _run("tnt_all_reduce", tf.convert_to_tensor(numbers), op=int(wire.operation("sum")))


def _run(collective: str, x: tf.Tensor, **attributes: int) -> tf.Tensor:
    context.refuse_in_trial(collective)
    with ops.translated_errors(), graph_order.after_last():
        result = getattr(ops.library(), collective)(x, communicator=communicator.attachment(), **attributes)
    graph_order.record([result])
    return result


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def broadcast_variables(variables: Any, root: int = 0) -> None:
    """Gives every rank the values of root's variables. Collective.

    Call it before the first step of your own training loop, for the model and for the optimizer once it is built. Inside a
    `tf.function` it takes numeric variables only.

    Args:
        variables: variables of Keras or TensorFlow, in any structure: as many, of the same shapes and types, on all ranks.
        root: the rank whose values are taken.

    Raises:
        TypeError: something is not a variable. InvalidArgumentError: there is no such rank. MismatchError: the ranks'
        variables differ. PeerLostError, DeadlineError: a rank is missing.

    Examples:
        >>> optimizer.build(model.trainable_variables)
        >>> tnt.broadcast_variables([*model.variables, *optimizer.variables])
    """
    flat = tf.nest.flatten(variables)
    weights.check_variables(flat, "tnt.broadcast_variables")
    if not 0 <= root < runtime.get_size():
        raise InvalidArgumentError(f"root is {root}: the job has ranks 0 to {runtime.get_size() - 1}")
    if tf.executing_eagerly():
        weights.broadcast(flat, root)
    elif runtime.get_size() > 1:
        _broadcast_in_graph(flat, root)


def _broadcast_in_graph(variables: Sequence[Any], root: int) -> None:
    for variable in variables:
        inner = adapter.unwrap(variable)
        inner.assign(_run("tnt_broadcast", inner.read_value(), root=root))
