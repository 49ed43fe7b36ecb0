"""Whether the elements of a dataset depend on how many were taken from it before."""

import tensorflow as tf

from tarantella.keras.adapter import datasets

# An iterator over one of these leaves no state behind, but that a shuffle draws a seed for each iterator when it begins.
_STATELESS = frozenset(
    {
        *("AssertCardinality", "Batch", "Enumerate", "Filter", "FixedLengthRecord", "FlatMap", "Interleave", "Map", "Options"),
        *("PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap", "Prefetch", "Range", "Scan", "Shard", "Shuffle"),
        *("Skip", "TFRecord", "Take", "Tensor", "TensorSlice", "TextLine", "Unbatch", "Window", "Zip"),
    }
)


def depends_on_iterators_only(dataset: tf.data.Dataset) -> bool:
    """Whether the elements depend on how many iterators were made and begun before, and not on what was taken from them."""
    for one in datasets.everything(dataset):
        operations = list(datasets.operations(one))
        if not _is_stateless(datasets.kind(one)) or any(name.startswith("Shuffle") for name in operations):
            return False
        if any(_keeps_state(name) for name in operations):
            return False
    return True


def runs_python(dataset: tf.data.Dataset) -> bool:
    """Whether making the elements runs Python code, such as a generator."""
    return any("PyFunc" in name for one in datasets.everything(dataset) for name in datasets.operations(one))


def _is_stateless(kind: str) -> bool:
    name, dataset, version = kind.partition("Dataset")
    return bool(dataset) and name in _STATELESS and version in ("", "V1", "V2", "V3", "V4")


def _keeps_state(operation: str) -> bool:
    """Whether the operation may give another result when it runs again. Called functions have their own operations."""
    # TensorFlow calls ReadFile stateful only so that the file is read each time.
    if operation in ("Placeholder", "ReadFile") or "PartitionedCall" in operation or _is_stateless(operation):
        return False
    return datasets.is_stateful(operation)
