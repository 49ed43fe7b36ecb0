"""The graph of layers of a functional or Sequential model of Keras 3.

XLA compiles segments of a model, for which the layers are called one by one. Keras runs its graph in one private method and has
no public view of its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tarantella.keras.adapter.common.models import layers_of
from tarantella.keras.adapter.front_end import keras


def layers_to_compile(model: Any) -> list[Any]:
    """The model and the layers in it whose calls XLA compiles in segments."""
    return layers_of(model)


def layer_graph(layer: Any) -> Any:
    """The object that runs the layers of a functional or Sequential model; None for any other layer."""
    graph = getattr(layer, "_functional", layer)  # Sequential has one inside
    return graph if hasattr(graph, "_run_through_graph") and hasattr(graph, "_nodes_by_depth") else None


def layer_graph_runner() -> str:
    """The name of that object's method that runs them, given the inputs and ``operation_fn``."""
    return "_run_through_graph"


def layer_calls(graph: Any) -> list[Any]:
    """The graph's calls of layers and operations, in the order in which they run."""
    by_depth = graph._nodes_by_depth
    ordered = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in ordered if node.operation and not node.is_input]


def run_layer_calls(calls: Sequence[Any], operation_fn: Callable[[Any], Any], values: dict[int, Any]) -> None:
    """Makes the calls and adds their results to the values, which are by id of the graph's symbolic tensors."""
    for node in calls:
        if all(id(tensor) in values for tensor in node.input_tensors):
            args, kwargs = node.arguments.fill_in(values)
            outputs = keras.tree.flatten(operation_fn(node.operation)(*args, **kwargs))
            values.update(zip(map(id, node.outputs), outputs, strict=False))


def layer_graph_outputs(graph: Any, values: dict[int, Any]) -> Any:
    """The graph's outputs, from the values that were computed in it."""
    missing = [tensor.name for tensor in graph.outputs if id(tensor) not in values]
    if missing:
        raise ValueError(f"the model's output {missing[0]} does not follow from the inputs that were given")
    return keras.tree.pack_sequence_as(graph._outputs_struct, [values[id(tensor)] for tensor in graph.outputs])
