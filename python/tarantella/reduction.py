"""`tnt.all_reduce`, `tnt.all_gather` and their kin.

Those of arrays are `tarantella.collectives`', those of tensors `tarantella.keras.reduction`'s.
"""

from typing import Any

from numpy.typing import ArrayLike, NDArray

from tarantella import collectives
from tarantella.collectives.arrays import is_tensor

UNKNOWN = 1 << 62
_elements = 0  # reduced so far


def elements_reduced() -> int:
    """How many elements the script has reduced by itself so far; in graphs, those of the operations that were traced."""
    return _elements


def note_elements(number: int | None) -> None:
    """The script reduces so many elements. None: nobody knows how many, so that they may be all of a model's gradients."""
    global _elements
    _elements += UNKNOWN if number is None else number


def all_reduce(x: ArrayLike | Any, op: str = "sum", out: NDArray[Any] | None = None) -> Any:
    """The elementwise reduction over all ranks, on every rank. Collective.

    Args:
        x: array, list, number, or a tensor or variable of TensorFlow or Keras; same shape and dtype on all ranks
            (float16/32/64, bfloat16, int8/32/64, uint8). Contiguous arrays of NumPy, and of others that have DLPack, are
            read where they lie, without a copy.
        op: ``"sum"``, ``"avg"``, ``"min"``, ``"max"`` or ``"prod"``. Sums are taken in a fixed order: the same bits always.
        out: a contiguous NumPy array of x's shape and dtype to write the result to, x itself for in place; not for tensors.

    Returns:
        out, or a new array of x's shape and dtype. Of a tensor or variable: a tensor, also inside a `tf.function`; sums and
        averages have gradients, which are reduced likewise.

    Raises:
        MismatchError: ranks called different things. PeerLostError, DeadlineError: a rank is missing.

    Examples:
        >>> tnt.all_reduce([tnt.get_rank() + 1.0])   # on 2 ranks
        array([3.])
    """
    if not is_tensor(x):
        result = collectives.all_reduce(x, op, out)
        note_elements(int(result.size))
        return result
    if out is not None:
        raise TypeError("out is for arrays: a tensor's reduction is a new tensor")
    from tarantella.keras.reduction.collectives import all_reduce as all_reduce_tensor  # imports TensorFlow

    reduced = all_reduce_tensor(x, op)
    note_elements(reduced.shape.num_elements())
    return reduced


def all_gather(x: ArrayLike | Any) -> Any:
    """The arrays or tensors of all ranks, on every rank. Collective.

    Args:
        x: an array, list or number, of the same shape and dtype on all ranks, of any dtype of fixed size; or a tensor or
            variable of TensorFlow or Keras that has rows (float16/32/64, bfloat16, int8/32/64, uint8, bool), as many as the
            rank likes, of the same shape and dtype on all ranks.

    Returns:
        Of an array: an array of shape ``(size, *x.shape)``; ``result[r]`` is rank r's. Of a tensor, also inside a
        `tf.function`: a tensor of all ranks' rows one after another, rank 0's first. It has a gradient: that of the sum of
        the ranks' losses, weighted as their gradients will be in a step of `tnt.Model` or in
        `DistributedGradientTape.gradient`. A rank that has no sample in a step of `tnt.Model` adds no row.

    Raises:
        MismatchError: ranks called different things. PeerLostError, DeadlineError: a rank is missing. UnsupportedError: a
        tensor in a step with ``reproducible=V``. ValueError: the tensor is a scalar.

    Examples:
        >>> tnt.all_gather(tf.fill([tnt.get_rank() + 1], tnt.get_rank())).numpy()   # on 2 ranks
        array([0, 1, 1], dtype=int32)
    """
    if not is_tensor(x):
        return collectives.all_gather(x)
    from tarantella.keras.reduction.rows import all_gather as all_gather_tensors  # imports TensorFlow

    return all_gather_tensors(x)


def all_to_all(x: Any, splits: ArrayLike | Any | None = None) -> tuple[Any, Any]:
    """Sends rows to each rank, and gets rows from each. Collective.

    Args:
        x: a tensor or variable of TensorFlow or Keras, or an array or list: the rows for rank 0 first. Of the same type and
            shape on all ranks, but for the number of rows.
        splits: how many of the rows go to each rank; None: equally many to each.

    Returns:
        The rows that this rank got, those of rank 0 first, and how many each rank has sent. They are tensors if x is one, also
        inside a `tf.function`, and else arrays. The rows of tensors have a gradient: that of the sum of the ranks' losses, as
        for `tnt.all_gather`.

    Raises:
        InvalidArgumentError: on all ranks: the splits of a rank do not add up to its rows. MismatchError: ranks called
        different things. PeerLostError, DeadlineError: a rank is missing. UnsupportedError: in a step with ``reproducible=V``.
        ValueError: x is a scalar.

    Examples:
        >>> tnt.all_to_all(tf.constant([10, 20, 30]) + tnt.get_rank(), [1, 2])[0].numpy()   # on 2 ranks, on rank 1
        array([20, 30, 21, 31], dtype=int32)
    """
    from tarantella.keras.reduction.rows import all_to_all as all_to_all_tensors  # imports TensorFlow

    rows, received = all_to_all_tensors(x, splits)
    return (rows, received) if is_tensor(x) else (rows.numpy(), received.numpy())


def reduce_scatter(x: Any, op: str = "sum") -> Any:
    """This rank's rows of the elementwise reduction over all ranks. Collective.

    Args:
        x: a tensor or variable of TensorFlow or Keras, or an array or list, as `tnt.all_reduce` takes them, with rows.
        op: as for `tnt.all_reduce`.

    Returns:
        Rank 0 gets the first rows, and each rank equally many; the first ranks get one more if they cannot be shared evenly.
        A tensor if x is one, also inside a `tf.function`, where sums and averages have gradients; else an array.

    Raises:
        As `tnt.all_to_all`.

    Examples:
        >>> tnt.reduce_scatter(tf.constant([1.0, 2.0, 3.0])).numpy()   # on 2 ranks, on rank 0
        array([2., 4.], dtype=float32)
    """
    from tarantella.keras.reduction.rows import reduce_scatter as reduce_scatter_tensors  # imports TensorFlow

    rows = reduce_scatter_tensors(x, op)
    note_elements(None)
    return rows if is_tensor(x) else rows.numpy()
