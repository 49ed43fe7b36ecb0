"""Parallel maps that draw random numbers, made serial.

A random operation with a state gives the next number to whichever thread comes first, so that the elements of a parallel map
differ between ranks though their seeds are the same. The dataset is made again from what `made_datasets` has noted, with serial
operations in the places of parallel ones. Datasets in the functions of others, as those of `interleave`, are nodes of a graph,
which is copied with these nodes changed. The rewriting of tf.data that is called make_deterministic also makes other maps
serial, such as those that look something up in a table.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tarantella import made_datasets
from tarantella.keras.adapter import datasets
from tarantella.keras.adapter.random_operations import SEEDS, Seeds

_SERIAL = {
    **{f"ParallelMapDataset{version}": ("MapDataset", 1) for version in ("", "V2")},
    **{f"ParallelInterleaveDataset{version}": ("InterleaveDataset", 3) for version in ("V2", "V3", "V4")},
    "LegacyParallelInterleaveDatasetV2": ("InterleaveDataset", 3),
}
"""The operation that does the same as a parallel one, and how many inputs it has beside those of its function."""
_PARALLEL = {*_SERIAL, "MapAndBatchDataset"}
_PARALLEL_KINDS = ("ParallelMap", "ParallelInterleave", "LegacyParallelInterleave", "MapAndBatch")
_DRAWING = {name for name, seeds in SEEDS.items() if seeds in (Seeds.ATTRIBUTES, Seeds.VARIABLE)}
_DRAWING |= {"RngReadAndSkip", "RngSkip"}
_DRAWING |= {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}  # the state of a keras.random.SeedGenerator
_USER_NAME = re.compile(r"__inference_(?:Dataset_|tf_data_experimental_)?(.*)_\d+")


def drawing_operation(function: Any) -> str | None:
    """An operation in a dataset's function, or in those that it calls, whose results depend on the order of the calls."""
    graph = function.graph.as_graph_def()
    return next(_draws(graph.node, {one.signature.name: one for one in graph.library.function}), None)


def _draws(nodes: Iterable[Any], library: dict[str, Any], seen: set[str] | None = None) -> Iterator[str]:
    seen = set() if seen is None else seen
    for node in nodes:
        if node.op in _DRAWING:
            yield node.op
        called = {node.op, *(value.func.name for value in node.attr.values())}
        called |= {one.name for value in node.attr.values() for one in value.list.func}
        for name in (called & library.keys()) - seen:
            seen.add(name)
            yield from _draws(library[name].node_def, library, seen)


class SerialDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """The same elements as those of a dataset, made by serial maps where they draw random numbers."""


def serial(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, list[str]]:
    """The dataset with its parallel maps and interleaves made serial that draw random numbers, and what each of them is.

    A dataset that has none is given back as it is. So are those of which it was not noted how they were made.
    """
    variant = tf.data.experimental.to_variant(dataset)
    made, names = _made_again(variant)
    return (dataset if made is variant else SerialDataset(dataset, made)), list(dict.fromkeys(names))


def left(dataset: tf.data.Dataset) -> bool:
    """Whether a parallel map that draws random numbers could not be made serial, as it was not noted how it was made."""
    all_of_it = list(datasets.everything(dataset))
    if any(isinstance(one, SerialDataset) for one in all_of_it):
        return False
    return any(is_parallel(one) and not _DRAWING.isdisjoint(datasets.operations(one)) for one in all_of_it)


def is_parallel(dataset: tf.data.Dataset) -> bool:
    """Whether the dataset, or one in a function of its own, runs a function in parallel."""
    return any(name.startswith(_PARALLEL_KINDS) for name in (datasets.kind(dataset), *datasets.operations(dataset)))


def _made_again(variant: Any) -> tuple[Any, list[str]]:
    """A dataset's tensor and the names; the same tensor for each call, so that a shuffle goes on where it was."""
    if not hasattr(variant, "_tnt_serial"):
        made = made_datasets.how(variant)
        variant._tnt_serial = (None, []) if made is None else _changed(made)
    again, names = variant._tnt_serial
    return (variant if again is None else again), names


def _changed(made: made_datasets.Made) -> tuple[Any, list[str]]:
    """The dataset with serial maps and the names, None if there is nothing to change."""
    names: list[str] = []
    before = made.arguments
    arguments = {name: _argument(value, names) for name, value in before.items()}
    operation = made.operation
    if operation in _PARALLEL and (drawn := drawing_operation(before["f"])) is not None:
        names.append(f"{_user_name(before['f'].name.decode())} ({drawn})")
        if operation in _SERIAL:
            operation = _SERIAL[operation][0]
        else:
            arguments["num_parallel_calls"] = tf.constant(1, tf.int64)
    elif all(arguments[name] is value for name, value in before.items()):
        return None, names
    function = made.function if operation == made.operation else getattr(tf.raw_ops, operation)
    known = inspect.signature(inspect.unwrap(function)).parameters
    with tf.device("CPU:0"):
        again = function(**{name: value for name, value in arguments.items() if name in known})
    again._tnt_keeps = before  # the Python functions that the copy of a graph calls
    return again, names


def _user_name(function: str) -> str:
    found = _USER_NAME.fullmatch(function)
    return found[1] if found else function


def _argument(value: Any, names: list[str]) -> Any:
    """An argument of an operation: a dataset or a function that has nothing to change is the same object."""
    if isinstance(value, (list, tuple)):
        changed = [_argument(one, names) for one in value]
        return value if all(one is other for one, other in zip(changed, value, strict=True)) else changed
    if isinstance(value, tf.Tensor) and value.dtype == tf.variant:
        again, found = _made_again(value)
        names.extend(found)
        return again
    return _function(value, names) if hasattr(value, "graph") and hasattr(value, "captured_inputs") else value


# --------------------------------------------------------------------------------------- datasets in the functions of others


def _function(function: Any, names: list[str]) -> Any:
    """A function whose datasets are serial where they draw. Its arguments are those of the given one and what that captures."""
    graph = function.graph.as_graph_def()
    library = {one.signature.name: one for one in graph.library.function}
    found = [_make_serial(node, library) for body in (graph.node, *(one.node_def for one in library.values())) for node in body]
    if not any(found):
        return function
    names.extend(name for name in found if name)
    inputs = list(function.inputs)
    outputs = [tensor.name for tensor in function.outputs]

    def copied(*tensors: tf.Tensor) -> list[tf.Tensor]:
        given = {tensor.name: value for tensor, value in zip(inputs, tensors, strict=True)}
        made: list[tf.Tensor] = tf.graph_util.import_graph_def(graph, given, outputs, name="")
        return made

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    return tf.function(copied, input_signature=specs, autograph=False).get_concrete_function()


def _make_serial(node: Any, library: dict[str, Any]) -> str | None:
    """Changes the node of a graph, if it is a parallel map that draws, and gives its name."""
    if node.op not in _SERIAL or (function := library.get(node.attr["f"].func.name)) is None:
        return None
    drawn = next(_draws(function.node_def, library), None)
    if drawn is None:
        return None
    node.op, beside = _SERIAL[node.op]
    inputs = [one for one in node.input if not one.startswith("^")]
    kept = beside + len(node.attr["Targuments"].list.type)
    extra = [f"^{one.lstrip('^').partition(':')[0]}" for one in node.input if one not in inputs[:kept]]
    node.input[:] = [*inputs[:kept], *dict.fromkeys(extra)]
    for name in set(node.attr) - set(inspect.signature(getattr(tf.raw_ops, node.op)).parameters) - {"Targuments"}:
        if not name.startswith("_"):
            del node.attr[name]
    return f"{_user_name(function.signature.name)} ({drawn})"
