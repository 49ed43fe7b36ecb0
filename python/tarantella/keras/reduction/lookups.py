"""Whether a step looks up rows of a table for each sample, or once for all samples of the batch.

One device has the gradient of a row that was looked up once summed over the batch, however many samples used it. The graph of
the step tells, not the values: rows that are distinct by chance on this rank may be repeated in the whole batch.
"""

from typing import Any

import tensorflow as tf

_SAME_ROWS = {"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"}  # operations that keep distinct indices distinct
# operations and which of their results is distinct indices; the gradients are of `tf.nn.embedding_lookup_sparse`, too
_DISTINCT = {"Unique": 0, "UniqueV2": 0, "UniqueWithCounts": 0, "UniqueWithCountsV2": 0}
_DISTINCT |= {f"SparseSegment{kind}GradV2": 1 for kind in ("Sum", "Mean", "SqrtN")}


def operation(tensor: tf.Tensor) -> Any:
    """What a graph's tensor was computed by. None if it was computed eagerly."""
    return getattr(tensor, "op", None)


def uses(indices: tf.Tensor) -> list[tf.Tensor]:
    """The indices of each use of a table: TensorFlow joins those of several uses."""
    op = operation(indices)
    return [indices] if op is None or op.type != "ConcatV2" else list(op.inputs)[:-1]


def are_distinct(indices: tf.Tensor) -> bool:
    """Whether the step looks up each row once, however often the batch has it, as `tf.nn.embedding_lookup_sparse` does."""
    op = operation(indices)
    while op is not None and op.type in _SAME_ROWS:
        indices = op.inputs[0]
        op = operation(indices)
    return op is not None and _DISTINCT.get(op.type) == indices.value_index


def are_common(indices: tf.Tensor) -> bool:
    """Whether the step looks up the same rows on all ranks, once for all samples, as an embedding of positions does.

    It does if the indices follow from constants, variables, and sizes other than the first, which is that of the batch. If the
    trace knows the size of the batch, that is a constant, too. Then it is the first size of indices that are repeated for each
    sample.
    """
    op = operation(indices)
    if op is None or not _follows_from_constants(op):
        return False
    while op.type == "Reshape":
        op = op.inputs[0].op
    shape = op.outputs[0].shape
    if shape.rank is None:
        return False
    return shape.rank < 2 or shape[0] is None or shape[0] not in _batch_sizes(op.graph)


def _batch_sizes(graph: Any) -> set[int | None]:
    """The first sizes of a function's arguments, and of the parts of them that this rank takes."""
    captured = {id(inner) for _, inner in getattr(graph, "captures", ())}
    data = [tensor for tensor in getattr(graph, "inputs", ()) if id(tensor) not in captured]
    parts = [taking.outputs[0] for tensor in data for taking in tensor.consumers() if taking.type == "GatherV2"]
    return {tensor.shape[0] for tensor in [*data, *parts] if tensor.shape.rank}


def _follows_from_constants(op: Any) -> bool:
    """Whether the results of an operation depend on nothing that is of this rank's samples, nor on their number."""
    waiting, seen = [op], {op}
    while waiting:
        op = waiting.pop()
        if op.type in ("Const", "ReadVariableOp") or _is_captured_constant(op) or _is_other_size(op):
            continue
        if op.type in ("Placeholder", "Shape", "ShapeN", "Size") or not op.inputs or op.op_def.is_stateful:
            return False
        before = {tensor.op for tensor in op.inputs} - seen
        seen |= before
        waiting += before
    return True


def _is_captured_constant(op: Any) -> bool:
    """Whether this is a constant from outside of the function."""
    outer = [outer for outer, inner in getattr(op.graph, "captures", ()) if inner.op is op]
    return bool(outer) and operation(outer[0]) is None and outer[0].dtype != tf.resource


def _is_other_size(op: Any) -> bool:
    """Whether this is a size of a tensor, and not the first one."""
    if op.type != "StridedSlice" or op.inputs[0].op.type != "Shape":
        return False
    begin, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].op.inputs[0].shape.rank
    return begin is not None and len(begin) == 1 and bool(rank) and begin[0] % rank > 0
