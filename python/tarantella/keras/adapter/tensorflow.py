"""TensorFlow's private parts that the package needs, apart from those of datasets.

TensorFlow 2.16, 2.18, 2.20 and 2.21 have all of them alike.
"""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_SCATTERS = ("add", "div", "max", "min", "mul", "sub", "update", "nd_add", "nd_max", "nd_min", "nd_sub", "nd_update")
VARIABLE_WRITES = ("assign", "assign_add", "assign_sub", "batch_scatter_update", *(f"scatter_{way}" for way in _SCATTERS))
"""The methods of a variable that change it."""


def operation_seeds() -> random.Random | None:
    """The generator that gives seeds to random operations without one; None before a global seed is set.

    `tf.random.set_seed` makes it anew from the seed. No public function tells how far it has come since.
    """
    from tensorflow.python.eager import context

    generator: random.Random | None = getattr(context.context(), "_rng", None)
    return generator


@functools.cache
def xla_operations() -> frozenset[str]:
    """The operations that XLA can compile on any processor; empty if TensorFlow does not say.

    The public API compiles or fails: it has no list of what would fail.
    """
    try:
        from tensorflow.python.util import pywrap_xla_ops

        return frozenset(pywrap_xla_ops.get_cpu_kernel_names())
    except (ImportError, AttributeError):
        return frozenset()


def converted_like_caller(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, rewritten by AutoGraph if what calls this is.

    The public `tf.function` decides by its own argument and does not know whether its caller was rewritten.
    """
    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(function, autograph.control_status_ctx())
    return converted


def variable_class() -> type:
    """The class whose methods change the variables of TensorFlow, those inside of Keras' variables among them."""
    from tensorflow.python.ops import resource_variable_ops

    found: type = resource_variable_ops.ResourceVariable
    return found


def run_independently(outputs: Sequence[tf.Tensor]) -> None:
    """Keeps TensorFlow from running the stateful operation that has these outputs after all those before it in the program.

    TensorFlow orders stateful operations in a graph. Those that are registered as distributed communication are exempt, but the
    stable C API cannot register any.
    """
    if tf.executing_eagerly():
        return
    manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(outputs[0].op)


def make_wait(operation: Any, others: Sequence[Any]) -> None:
    """An operation of a graph waits for others of it, also for some that were added after it."""
    operation._add_control_inputs([other for other in others if other not in operation.control_inputs])


def inputs_only_read(operation: Any) -> Sequence[int]:
    """The places, among the inputs of an operation that calls a function, of variables that it does not change."""
    try:
        found: Sequence[int] = operation.get_attr("_read_only_resource_inputs")
    except ValueError:
        return ()
    return found


def own_variable(value: Any, **kwargs: Any) -> tf.Variable:
    """A variable of ours that steps use. Arguments: those of `tf.Variable`."""
    variable = tf.Variable(value, trainable=False, **kwargs)
    variable._tnt_is_own = True
    return variable


def is_own(variable: tf.Variable) -> bool:
    """Whether it is one of these."""
    return getattr(variable, "_tnt_is_own", False)


def variables_read(graph: Any) -> list[tf.Variable]:
    """The variables that a function's graph has read so far. The public attribute has them when the trace is complete."""
    return list(getattr(graph, "_watched_variables", ()))


def enclosing_function(graph: Any, wanted: Any) -> Any:
    """The graph, or the one that it is a branch or a loop's body of, up to the wanted one. It does not leave a `tf.function`.

    The graphs have no public way to their outer ones.
    """
    while graph is not None and graph is not wanted and type(graph).__name__ != "FuncGraph":
        graph = getattr(graph, "outer_graph", None)
    return graph


def is_called_from(graph: Any, caller: Any) -> bool:
    """Whether a graph is the caller's or that of a function called by it, at any depth, but not in a loop or a branch.

    None stands for eager execution.
    """
    while graph is not caller:
        if type(graph).__name__ != "FuncGraph":
            return caller is None and type(graph).__name__ == "Graph"  # outside of all functions
        graph = graph.outer_graph
    return True
