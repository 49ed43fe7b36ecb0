"""Questions about the operations of a step's graph: which draw random numbers, and which variables they use or change."""

from collections.abc import Container, Iterable, Sequence
from itertools import chain
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import inputs_only_read, is_own, variables_read

_CALLS = {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
_DRAWS = ("NonDeterministicInts", "Rng", "StatefulRandom", "StatefulStandardNormal", "StatefulTruncated", "StatefulUniform")
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")


def with_random_states(graph: Any) -> list[str]:
    """The types of operations in a graph that keep a random state of their own, which another trace would start anew."""
    definition = graph.as_graph_def()
    nodes = chain(definition.node, *(function.node_def for function in definition.library.function))
    return sorted({node.op for node in nodes if "seed2" in node.attr and not node.op.startswith("Cudnn")})


def draws_of_other_generators(graph: Any, known: Sequence[Any]) -> list[str]:
    """The types of operations in the graph that draw from TensorFlow generators with other states than the known ones."""
    handles = {id(adapter.unwrap(state).handle) for state in known}
    outside = _outside(graph)
    draws = [op for op in graph.get_operations() if op.type.startswith(_DRAWS)]
    return sorted({op.type for op in draws if not op.inputs or outside.get(id(op.inputs[0])) not in handles})


def functions_that_draw(graph: Any, draws: Container[str], scope: str) -> dict[str, list[str]]:
    """The functions that the graph calls and that draw random numbers, none of them in a name scope: their draws, by name.

    Args:
        draws: the types of operations that draw.
        scope: the name scope; where it occurs once, the function was traced for this graph.
    """
    if not any(op.type in _CALLS for op in graph.get_operations()):
        return {}
    found = {}
    for function in graph.as_graph_def().library.function:
        drawing = [node for node in function.node_def if node.op in draws]
        if drawing and not any(scope in node.name for node in drawing):
            found[function.signature.name] = sorted({node.op for node in drawing})
    return found


def used(graph: Any, begin: int, variables: Sequence[Any]) -> list[Any]:
    """Those of the variables that operations of the graph use, from operation number ``begin`` on."""
    outside = _outside(graph)
    taken = {outside.get(id(tensor)) for operation in graph.get_operations()[begin:] for tensor in operation.inputs}
    return [variable for variable in variables if id(adapter.unwrap(variable).handle) in taken]


def changed(graph: Any, variables: Sequence[Any]) -> list[Any]:
    """Those of the variables that operations of the graph may change."""
    handles = set(map(id, handles_changed(graph, graph.get_operations())))
    return [variable for variable in variables if id(adapter.unwrap(variable).handle) in handles]


def changed_unknown(graph: Any, known: Sequence[Any]) -> list[tf.Variable]:
    """The variables, without the known ones, that operations of the graph may change: in the order of their first use.

    What TensorFlow alone keeps, such as the state of an iterator, is none.
    """
    handles = {id(handle) for handle in handles_changed(graph, graph.get_operations())}
    return [variable for variable in unknown(graph, known) if id(variable.handle) in handles]


def unknown(graph: Any, known: Sequence[Any]) -> list[tf.Variable]:
    """The variables, without the known ones, that operations of the graph use: in the order of their first use."""
    variables = {id(v.handle): v for v in variables_read(graph)}
    for variable in known:
        variables.pop(id(adapter.unwrap(variable).handle), None)
    return [variables[id(outer)] for outer, _ in graph.captures if id(outer) in variables and not is_own(variables[id(outer)])]


def handles_changed(graph: Any, operations: Iterable[Any]) -> list[Any]:
    """The handles of variables, from outside of a function's graph, that these operations of it may change."""
    inside: set[Any] = set().union(*map(resources_changed, operations))
    return [outer for outer, inner in graph.captures if inner.ref() in inside]


def resources(operation: Any) -> set[Any]:
    """The tensors, as references, by which an operation of a graph gets variables."""
    return {tensor.ref() for tensor in operation.inputs if tensor.dtype == tf.resource}


def resources_changed(operation: Any) -> set[Any]:
    """Of `resources`, those of variables that the operation may change."""
    if operation.type in _READS:
        return set()
    return resources(operation) - {operation.inputs[i].ref() for i in inputs_only_read(operation)}


def _outside(graph: Any) -> dict[int, int]:
    """The tensor that a function's graph captures, by the id of its placeholder inside; both as ids."""
    return {id(inner): id(outer) for outer, inner in graph.captures}
