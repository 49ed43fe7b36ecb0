"""The parts of a `tf.data.Dataset`, as far as its Python objects tell.

TensorFlow has no public way to ask a dataset for the operation that made it, for that operation's arguments or for its inputs:
this file reads the private attributes of the dataset classes. They are the same in TensorFlow 2.16, 2.18, 2.20 and 2.21. Where
one is missing, the functions raise AttributeError, and their callers do without.
"""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

BATCHES = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")
PLAIN_BATCHES = ("BatchDataset", "ParallelBatchDataset")
MAPS = ("MapDataset", "ParallelMapDataset")
_SAME_ELEMENTS = ("AssertCardinality", "Cache", "Filter", "Options", "Prefetch", "Repeat", "Shard", "Shuffle", "Skip", "Take")

# ------------------------------------------------------------------------------------------------- the chain of operations


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


def is_cached_in_file(dataset: tf.data.Dataset) -> bool:
    """Whether the dataset itself is a cache that is kept in a file."""
    return kind(dataset) == "CacheDataset" and bool(tf.strings.length(dataset._filename))


def last_batch(dataset: tf.data.Dataset) -> tf.data.Dataset | None:
    """The last `batch` or `padded_batch` in the chain; None if there is none."""
    return next((one for one in chain(dataset) if kind(one) in BATCHES), None)


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """How many samples batches have, but for the last one, if the dataset says so."""
    specs = tf.nest.flatten(dataset.element_spec)
    if specs and specs[0].shape.rank and specs[0].shape[0] is not None:
        return int(specs[0].shape[0])
    last = last_batch(dataset)
    return None if last is None else batch_size_argument(last)


def batch_sizes(dataset: tf.data.Dataset) -> list[int]:
    """How many samples the tensors of a batch have, but for the last one, as far as the dataset says so; each size once."""
    *_, first = chain(dataset)
    zipped = [batch_size(one) for one in first._inputs()] if kind(first) == "ZipDataset" else []
    known = [spec.shape[0] for spec in tf.nest.flatten(dataset.element_spec) if spec.shape.rank]
    return sorted({int(size) for size in (*known, *([] if has_one_size(dataset) else zipped)) if size is not None})


def has_one_size(dataset: tf.data.Dataset) -> bool:
    """Whether all tensors of an element are known to have equally many samples: one operation made batches of all of them."""
    made = next((kind(one) for one in chain(dataset) if kind(one).partition("Dataset")[0] not in _SAME_ELEMENTS), "")
    return made in BATCHES or len(tf.nest.flatten(dataset.element_spec)) == 1


def tells_sizes(dataset: tf.data.Dataset) -> bool:
    """Whether it is known before it runs how many samples each tensor of a batch has, but for the last one.

    A `zip` of batches tells, and so do shapes. The tensors of a batch that a generator or a map makes may have any sizes.
    """
    *_, first = chain(dataset)
    zips_batches = kind(first) == "ZipDataset" and last_batch(dataset) is None
    shaped = all(spec.shape.rank and spec.shape[0] is not None for spec in tf.nest.flatten(dataset.element_spec))
    return has_one_size(dataset) or shaped or (zips_batches and all(batch_size(one) is not None for one in first._inputs()))


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """Whether no operation was allowed to give its elements in any order."""
    return all(
        deterministic_argument(one) is not False
        and one.options().deterministic is not False
        and (kind(one) != "ParallelInterleaveDataset" or _is_written_deterministic(one))
        for one in everything(dataset)
    )


def _is_written_deterministic(dataset: tf.data.Dataset) -> bool:
    """Reads the graph that TensorFlow would write into a file, as an interleave's own object does not tell."""
    written = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset))
    graph = tf.compat.v1.GraphDef.FromString(written.numpy())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return all(node.attr["deterministic"].s != b"false" for node in nodes if "deterministic" in node.attr)


# ----------------------------------------------------------------------------------------------- arguments of an operation


def batch_size_argument(batched: tf.data.Dataset) -> int | None:
    """The batch size that a `batch` or `padded_batch` was given; None if it is not known before the dataset runs."""
    return _number(batched._batch_size)


def drop_remainder_argument(batched: tf.data.Dataset) -> bool | None:
    """Whether a `batch` drops a last batch of fewer samples; None if it is not known before the dataset runs."""
    number = _number(batched._drop_remainder)
    return None if number is None else bool(number)


def deterministic_argument(dataset: tf.data.Dataset) -> bool | None:
    """The argument ``deterministic`` of a `map` or `batch`; None if it has none."""
    return {"true": True, "false": False}.get(getattr(dataset, "_deterministic", "default"))


def parallel_calls_argument(dataset: tf.data.Dataset) -> Any:
    """The argument ``num_parallel_calls`` of a `map` or `batch`; None if it has none."""
    return getattr(dataset, "_num_parallel_calls", None)


def buffer_size_argument(prefetched: tf.data.Dataset) -> int | None:
    """The buffer size that a `prefetch` was given; None if it is not known before the dataset runs."""
    return _number(prefetched._buffer_size)


def count_argument(dataset: tf.data.Dataset) -> Any:
    """The count that a `repeat`, `take` or `skip` was given: a tensor."""
    return dataset._count


def seeds(shuffled: tf.data.Dataset) -> tuple[int | None, int | None]:
    """The two seeds of a `shuffle`, made of its own and of TensorFlow's: both are 0 if there is none, None if unknown."""
    return _number(shuffled._seed), _number(shuffled._seed2)


def _number(tensor: Any) -> int | None:
    value = tf.get_static_value(tensor)
    return None if value is None else int(value)


# ------------------------------------------------------------------------------------------ functions inside of operations


def mapped_function(mapped: tf.data.Dataset) -> Callable[..., Any]:
    """The Python function that a `map` was given."""
    return mapped._map_func._func  # type: ignore[no-any-return]


def stateful_operation(mapped: tf.data.Dataset) -> str | None:
    """The first operation in the function of a `map` that may give something else when it is called again."""
    graph = mapped._map_func.function.graph
    return next((op.type for op in graph.get_operations() if op.op_def.is_stateful and op.type != "Placeholder"), None)


def operations(dataset: tf.data.Dataset) -> Iterator[str]:
    """The operations in the functions of one dataset, such as a map's, and in those they call."""
    for value in vars(dataset).values():
        graph = getattr(getattr(value, "function", None), "graph", None)
        if graph is not None:
            definition = graph.as_graph_def()
            yield from (node.op for node in definition.node)
            yield from (node.op for function in definition.library.function for node in function.node_def)


def is_stateful(operation: str) -> bool:
    """Whether TensorFlow calls the operation stateful, or does not know it.

    The public `tf.Operation.op_def` says so of an operation in a graph alone, and those of a nested function are in none.
    """
    definition = op_def_registry.get(operation)
    return definition is None or bool(definition.is_stateful)
