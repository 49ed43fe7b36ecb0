"""Collectives on tensors and variables of TensorFlow and Keras, in graphs and eagerly."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.collectives import wire
from tarantella.collectives.group import Group
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.reduction import communicator, device_placement, graph_order, ops, weights


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def all_reduce(tensor: Any, op: str, group: Group | None = None, name: str | None = None) -> tf.Tensor:
    """`tnt.all_reduce` of a tensor: see there.

    Args:
        group: whose members call it, all ranks if None.
        name: of the tensor; ranks compare it, and the shapes, before they reduce. None: they compare counts and types only.
    """
    x = tf.convert_to_tensor(adapter.unwrap(tensor))
    wire.element_type(x.dtype.name)  # or an error
    operation = wire.operation(op)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if op not in ("sum", "avg"):
                raise UnsupportedError(f"tnt.all_reduce(op={op!r}) has no gradient: use 'sum' or 'avg', or tf.stop_gradient")
            return all_reduce(upstream, op, group, None if name is None else f"gradient of {name}")

        return run("tnt_all_reduce", x, group=group, op=int(operation), **_comparison(name)), gradient

    return reduced(x)


def _comparison(name: str | None) -> dict[str, Any]:
    return {} if name is None else {"compare": 1, "tensor": name}


def broadcast(tensor: Any, root: int, group: Group | None = None, name: str | None = None) -> tf.Tensor:
    """The tensor of the rank that is `root` within the group, on all its members; has no gradient. As `all_reduce`."""
    x = tf.convert_to_tensor(adapter.unwrap(tensor))
    return run("tnt_broadcast", x, group=group, root=root, **_comparison(name))


def join(meetings: int = 0) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """This rank has no more data: it adds zeros to the others' sums, until all ranks join or the others reduce gradients.

    Only those sums can be joined for which `all_reduce` was given a name, and gradients that `meet` announces. Eager.

    Args:
        meetings: how often it has met the others since it joined.

    Returns:
        The rank that was the last to join; the number of the reducer that the others use now, in which this rank must take
        part before it joins again, or 0 if all have joined; and how often it has met the others by now.
    """
    return tuple(run("tnt_join", tf.constant(meetings, tf.int64)))


def meet(reducer: int, text: str) -> tf.Tensor:
    """Tells ranks that have joined that the others reduce gradients. Collective.

    Args:
        reducer: a number of the reducer, the same on all ranks. 0: it is still to be made, and no rank may have joined.
        text: what is reduced, for errors: equal on all ranks.
    """
    return run("tnt_meet", reducer=reducer, gradients=text)


def total(numbers: Any) -> tf.Tensor:
    """The sum over ranks of the few numbers that a step needs beside gradients; has no gradient itself. Collective."""
    return run("tnt_all_reduce", tf.convert_to_tensor(numbers), op=int(wire.operation("sum")))


def all_true(flag: tf.Tensor) -> tf.Tensor:
    """Whether the flag is true on all ranks. Collective."""
    return tf.equal(total(tf.cast(flag, tf.int32)), runtime.get_size())


def run(collective: str, *inputs: tf.Tensor, group: Group | None = None, **attributes: Any) -> Any:
    """The outputs of one of our blocking ops, which runs after the graph's earlier ones."""
    context.refuse_in_trial(collective.replace("rows", "").rstrip("_"))
    placed = device_placement.on_host()
    with ops.translated_errors(), graph_order.after_last(), placed:
        outputs = getattr(ops.library(), collective)(*inputs, communicator=communicator.attachment(group), **attributes)
    graph_order.record([outputs if isinstance(outputs, tf.Tensor) else outputs[0]])
    return outputs


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
        variables differ. UnsupportedError: in a graph of TensorFlow 1. PeerLostError, DeadlineError: a rank is missing.

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
    elif not context.graph().building_function:
        raise UnsupportedError(
            "tnt.broadcast_variables in a graph of TensorFlow 1 would do nothing: call it eagerly or inside a tf.function"
        )
    elif runtime.get_size() > 1:
        _broadcast_in_graph(flat, root)


def _broadcast_in_graph(variables: Sequence[Any], root: int) -> None:
    for variable in variables:
        inner = adapter.unwrap(variable)
        inner.assign(run("tnt_broadcast", inner.read_value(), root=root))
