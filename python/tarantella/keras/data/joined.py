"""Batches of samples that are joined into one, such as mini-batches of graphs: no rows of them are a sample.

A mini-batch of graphs has the nodes of all its graphs, a block matrix or a list of their edges, and a label for each graph. Its
tensors have as many rows as there are nodes, edges and graphs, in another proportion in each batch. Such a batch cannot be cut,
and the number of its samples cannot be read off: each rank reads batches of its own, and the user states the number.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from tarantella.errors import mark
from tarantella.keras.data import rows

Stated: TypeAlias = int | Callable[[Any], Any]
"""The number of a batch's samples, or a function of the batch that gives it."""

_STATE = "tnt_batch_size=lambda batch: tf.shape(batch[1])[0] if there is one label for each sample"
IN_PARTS = (
    "and ranks would get some rows of each. If they are several samples joined into one, such as graphs, let each rank read "
    f"batches of its own with tnt_distribute_dataset=False, and state how many samples a batch has: {_STATE}. For validation "
    "data there are tnt_distribute_validation_dataset and tnt_validation_batch_size; predict computes all data on each rank "
    "with tnt_distribute_dataset=False"
)
AS_IT_IS = (
    f"so the number of its samples is not known, by which ranks count: state it, such as {_STATE} (tnt_validation_batch_size= "
    "for validation data)"
)


def checks(tensors: Mapping[str, Any], tells_sizes: bool, then: str, are_batched: bool = True) -> list[tf.Operation]:
    """Operations that fail, with a sentence, if the samples of a batch are joined into one. Eagerly they fail at once.

    Args:
        tensors: of the batch, by name.
        tells_sizes: whether their proportion is that which the user's dataset says.
        then: what follows from it, and what to do: `IN_PARTS` or `AS_IT_IS`.
        are_batched: whether an operation of the dataset has put samples together.
    """
    return [check for check in _checks(tensors, tells_sizes, then, are_batched) if check is not None]


def _checks(tensors: Mapping[str, Any], tells_sizes: bool, then: str, are_batched: bool) -> Iterator[Any]:
    sizes = tf.stack([rows.size_of(tensor) for tensor in tensors.values()])
    least = tf.reduce_min(sizes)
    if not tells_sizes:
        said = tf.strings.join([f"of the tensors {', '.join(tensors)} of a batch, which have ", _listed(sizes), " rows, "])
        divides = tf.reduce_all(tf.math.floormod(sizes, tf.maximum(least, 1)) == 0)
        yield tf.debugging.Assert(divides, [_marked(said, f"none has a row for each sample, {then}")])
    for name, tensor in tensors.items():
        if _may_be_square(tensor, are_batched):
            own, columns = rows.size_of(tensor), _columns_of(tensor)
            size = tf.strings.as_string(own)
            said = tf.strings.join([f"the tensor {name} of a batch is a matrix of ", size, " x ", size])
            is_square = (own == columns) & (own > 1)
            if not isinstance(tensor, tf.SparseTensor):
                is_square &= least < tf.reduce_max(sizes)  # or samples happen to be as many as their numbers
            yield tf.debugging.Assert(~is_square, [_marked(said, f", as that of the edges of graphs, {then}")])


def _may_be_square(tensor: Any, are_batched: bool) -> bool:
    """Whether it can be a matrix of each row with each: neither number of the two is known before there is data.

    Both are if it is that of one large graph.
    """
    if isinstance(tensor, tf.RaggedTensor) or tensor.shape.rank != 2:
        return False
    sizes = list(tensor.shape)
    return sizes == [None, None] or (isinstance(tensor, tf.SparseTensor) and sizes[0] == sizes[1] and not are_batched)


def _columns_of(tensor: Any) -> tf.Tensor:
    return tensor.dense_shape[1] if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor, tf.int64)[1]


def _listed(numbers: tf.Tensor) -> tf.Tensor:
    return tf.strings.reduce_join(tf.strings.as_string(numbers), separator=", ")


def _marked(said: tf.Tensor, rest: str, status: str = "TNT_UNSUPPORTED") -> tf.Tensor:
    before, after = mark(status, f"\0{rest}").split("\0")
    return tf.strings.join([before, said, after])


def stated_samples(stated: Stated, batch: Any) -> tf.Tensor:
    """The number of samples that the user states: a scalar, int64, which fails with a sentence if it is wrong.

    A number must be that of the rows of some tensor: the last batch of a dataset may have fewer samples.
    """
    sizes = tf.stack([rows.size_of(tensor) for tensor in tf.nest.flatten(batch)])
    if callable(stated):
        number = tf.cast(tf.convert_to_tensor(stated(batch)), tf.int64)
        if number.shape.rank != 0:
            raise ValueError(f"tnt_batch_size gives a tensor of shape {number.shape} for a batch: let it give one number")
        text, is_right = tf.strings.join(["tnt_batch_size gives ", tf.strings.as_string(number), " samples"]), number > 0
        rest = " for a batch: let it give how many the batch has"
    else:
        number = tf.constant(stated, tf.int64)
        text = tf.strings.join([f"tnt_batch_size is {stated}, and the tensors of a batch have ", _listed(sizes), " rows"])
        is_right = tf.reduce_any(sizes == number)
        rest = ", so it has another number of samples: give a function of the batch, or leave out batches that are not full"
    check = tf.debugging.Assert(is_right, [_marked(text, rest, "TNT_INVALID_ARGUMENT")])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(number)
