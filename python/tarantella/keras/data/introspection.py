"""What a `tf.data.Dataset` is made of, as far as its objects tell.

TensorFlow has no public way to ask. The attributes that are read here are the same in TensorFlow 2.16 to 2.21; where one is
missing, what depends on it is not done, and nothing else changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHES = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")
PLAIN_BATCHES = ("BatchDataset", "ParallelBatchDataset")
MAPS = ("MapDataset", "ParallelMapDataset")


def kind(dataset: tf.data.Dataset) -> str:
    """The operation that made the dataset: ``"MapDataset"``, ``"ShuffleDataset"``."""
    return type(dataset).__name__.lstrip("_")


def before(dataset: tf.data.Dataset) -> tf.data.Dataset | None:
    """The dataset that the operation was applied to; None if there is none, or several."""
    return getattr(dataset, "_input_dataset", None)


def chain(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """The dataset, the one it was made of, and so on to the first that was not made of just one other."""
    current: tf.data.Dataset | None = dataset
    while current is not None:
        yield current
        current = before(current)


def everything(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """The dataset and all that it was made of."""
    yield dataset
    for one in dataset._inputs():
        yield from everything(one)


def number(dataset: tf.data.Dataset, attribute: str) -> int | None:
    """An operation's argument, such as ``"_batch_size"``; None if it is not known before the dataset runs."""
    value = tf.get_static_value(getattr(dataset, attribute))
    return None if value is None else int(value)


def last_batch(dataset: tf.data.Dataset) -> tf.data.Dataset | None:
    """The last `batch` or `padded_batch` in the chain; None if there is none."""
    return next((one for one in chain(dataset) if kind(one) in BATCHES), None)


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """How many samples batches have, but for the last one, if the dataset says so."""
    specs = tf.nest.flatten(dataset.element_spec)
    if specs and specs[0].shape.rank and specs[0].shape[0] is not None:
        return int(specs[0].shape[0])
    last = last_batch(dataset)
    return None if last is None else number(last, "_batch_size")


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """Whether no operation was allowed to give its elements in any order."""
    return all(
        getattr(one, "_deterministic", "default") != "false"
        and one.options().deterministic is not False
        and (kind(one) != "ParallelInterleaveDataset" or _is_written_deterministic(one))
        for one in everything(dataset)
    )


def _is_written_deterministic(dataset: tf.data.Dataset) -> bool:
    """By what TensorFlow would write into a file, which an interleave's own object does not tell."""
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return all(node.attr["deterministic"].s != b"false" for node in nodes if "deterministic" in node.attr)


def stateful_operation(of_map: tf.data.Dataset) -> str | None:
    """The first operation in the function of a `map` that may give something else when it is called again."""
    graph = of_map._map_func.function.graph
    return next((op.type for op in graph.get_operations() if op.op_def.is_stateful and op.type != "Placeholder"), None)
