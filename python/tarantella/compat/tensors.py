"""Reductions, broadcasts and gathers of numbers, arrays and tensors, and of lists, tuples and dicts of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import reduction
from tarantella.collectives import started
from tarantella.collectives.arrays import pack, unpack
from tarantella.collectives.fused import FusedSum
from tarantella.collectives.group import Group
from tarantella.collectives.wire import wire_format
from tarantella.compat.operations import require_same_lines
from tarantella.compat.structure import Leaf, flatten, leaf, rebuild
from tarantella.errors import InvalidArgumentError


def _like(leaves: Sequence[Leaf], template: Sequence[Leaf], name: str) -> list[NDArray[Any]]:
    """The arrays of the leaves, cast to the types of the template. Raises InvalidArgumentError if they do not fit."""
    if len(leaves) != len(template):
        wanted, given = len(template), len(leaves)
        raise InvalidArgumentError(f"{name} was made for {wanted} numbers, arrays or tensors: it was given {given}")
    arrays = []
    for own, made_for in zip(leaves, template, strict=True):
        dtype = made_for.array.dtype
        if own.array.shape != made_for.array.shape or not np.can_cast(own.array.dtype, dtype, "same_kind"):
            raise InvalidArgumentError(f"{name} was made for {made_for}: it was given {own}")
        arrays.append(own.array.astype(dtype, copy=False))
    return arrays


class _TensorCollective:
    """The base of the collectives here: the structure of the inputs that it was made for."""

    def __init__(self, inputs: Any, group: Group | None, lines: Callable[[Sequence[Leaf]], Sequence[str]]) -> None:
        self._group = group or Group()
        self._rank = self._group.rank  # or an error
        self._inputs = inputs
        self._leaves: list[Leaf] = []
        failure: Exception | None = None
        own: Sequence[str] = []
        try:
            self._leaves = flatten(inputs)
            own = lines(self._leaves)
        except (TypeError, ValueError) as error:
            failure = error
        require_same_lines(self._group, type(self).__name__, own, failure)


class TensorAllreducer(_TensorCollective):
    """Sums over the ranks of a group, elementwise. Making one is collective on the group.

    Args:
        inputs: what shall be summed has this form: numbers (Python's and NumPy's), arrays (NumPy's or with DLPack), eager
            tensors, any of them in lists, tuples and dicts; of any type of numbers, of booleans (whose sum is OR, as in
            NumPy) and of any shape, the same on all ranks.
        group: whose members call it, all ranks if None.

    Raises:
        TypeError: something else is in there. InvalidArgumentError: this rank is not in the group. MismatchError: ranks have
        different inputs; all of them learn where.

    Examples:
        >>> losses = {"loss": 0.5 + tnt.get_rank(), "counts": np.ones(2, np.int32)}
        >>> tnt.TensorAllreducer(losses).allreduce(losses)   # on 2 ranks
        {'loss': 2.0, 'counts': array([2, 2], dtype=int32)}
    """

    def __init__(self, inputs: Any, group: Group | None = None) -> None:
        super().__init__(inputs, group, self._lines)
        self._started: tuple[Any, list[Leaf], FusedSum] | None = None

    def _lines(self, leaves: Sequence[Leaf]) -> list[str]:
        for found in leaves:
            wire_format(found.array.dtype, "sum")  # or an error
        return [str(found) for found in leaves]

    def allreduce(self, inputs: Any) -> Any:
        """The sums, in the inputs' form: of numbers numbers, of arrays new arrays, of tensors tensors. Collective."""
        self.start(inputs)
        return self.wait_for_completion()

    def start(self, inputs: Any) -> None:
        """Starts, and returns at once; arrays among the inputs may change from now on. Collective."""
        if self._started is not None:
            raise InvalidArgumentError("TensorAllreducer was started already: call wait_for_completion first")
        leaves = flatten(inputs)
        arrays = _like(leaves, self._leaves, "TensorAllreducer")
        reduction.note_elements(sum(array.size for array in arrays))
        self._started = inputs, leaves, FusedSum(self._group.communicator(), arrays)

    def wait_for_completion(self, inputs: Any = None) -> Any:
        """The sums of what was started. inputs: accepted for scripts that give them again."""
        if self._started is None:
            raise InvalidArgumentError("TensorAllreducer: nothing was started: call start first")
        (given, leaves, sums), self._started = self._started, None
        return rebuild(given, [found.like(total) for found, total in zip(leaves, sums.wait(), strict=True)])


class TensorBroadcaster(_TensorCollective):
    """One rank's numbers, arrays and tensors, on all ranks of a group. Making one is collective on the group.

    Args:
        inputs: what shall be sent has this form, as for `tnt.TensorAllreducer`, and any type of fixed size.
        root_rank: whose values are taken: a rank within the group.
        group: whose members call it, all ranks if None.

    Raises:
        As `tnt.TensorAllreducer`; InvalidArgumentError also if the group has no such rank.

    Examples:
        >>> broadcaster = tnt.TensorBroadcaster(settings)
        >>> settings = broadcaster.broadcast(settings) if tnt.get_rank() == 0 else broadcaster.broadcast()
    """

    def __init__(self, inputs: Any, root_rank: int = 0, group: Group | None = None) -> None:
        self._root = root_rank
        super().__init__(inputs, group, self._lines)

    def _lines(self, leaves: Sequence[Leaf]) -> list[str]:
        self._group.to_global_rank(self._root)
        return [f"root {self._root}", *map(str, leaves)]

    def broadcast(self, inputs: Any = None) -> Any:
        """The root's values, in the form that this was made for. Collective.

        Args:
            inputs: the values, on the root; what others give does not matter.
        """
        is_root = self._rank == self._root
        if is_root and inputs is None:
            raise InvalidArgumentError("TensorBroadcaster: the root has to give what to broadcast")
        given = inputs if is_root else self._inputs
        leaves = flatten(given)
        arrays = _like(leaves, self._leaves, "TensorBroadcaster")
        data = started.broadcast(self._group.communicator(), pack(arrays), self._root).wait()
        return rebuild(given, [found.like(array) for found, array in zip(leaves, unpack(data, arrays), strict=True)])


class TensorAllgatherer(_TensorCollective):
    """All ranks' elements one after another, on all ranks of a group. Making one is collective on the group.

    Args:
        inputs: a number, array or tensor; its size may differ from rank to rank, its type may not.
        group: whose members call it, all ranks if None.

    Raises:
        As `tnt.TensorAllreducer`.

    Examples:
        >>> mine = np.full(tnt.get_rank() + 1, tnt.get_rank())
        >>> tnt.TensorAllgatherer(mine).allgather(mine)   # on 3 ranks
        array([0, 1, 1, 2, 2, 2])
    """

    def __init__(self, inputs: Any, group: Group | None = None) -> None:
        super().__init__(inputs, group, lambda _: [leaf(inputs).type])
        own = np.array([self._leaves[0].array.size], np.int64)
        self._counts = started.all_gather(self._group.communicator(), own, [1] * self._group.size).wait().tolist()

    def allgather(self, inputs: Any) -> Any:
        """A one-dimensional array, or of tensors a tensor, of all elements in the order of ranks. Collective."""
        own = leaf(inputs)
        (array,) = _like([own], self._leaves, "TensorAllgatherer")
        together = started.all_gather(self._group.communicator(), array.reshape(-1), self._counts).wait()
        return own.like(together) if own.kind == "tensor" else together
