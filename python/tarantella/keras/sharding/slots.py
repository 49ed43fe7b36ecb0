"""Reading and writing an optimizer's state that is spread over ranks, one variable at a time."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter

_END, _READ, _WRITE = range(3)


class SharedSlots:
    """The slots of one model's optimizers.

    As a rule all ranks read or write the same slots in the same order. Where the master works alone, as when it writes a file,
    the others answer it (`served`).
    """

    def __init__(self) -> None:
        self._slots: list[Any] = []
        self._is_asking = False
        self._in_step = False

    def add(self, slot: Any) -> None:
        """The slot is one of these. Slots are added in the same order on all ranks."""
        slot._tnt_holder, slot._tnt_number = self, len(self._slots)
        self._slots.append(slot)

    def asks_owners(self) -> bool:
        """Whether this rank is the master and works alone, and the others answer."""
        return self._is_asking

    def read(self, slot: Any) -> NDArray[Any]:
        """The value of a slot. Collective, but for a master that works alone."""
        if self._is_asking:
            self._announce(_READ, slot._tnt_number)
        else:
            self._meet_to_read(slot)
        return _sent_by_owner(slot)

    def _meet_to_read(self, slot: Any) -> None:
        """Checks that all ranks read this slot. Otherwise values of the same size would be taken for each other's."""
        reading = f"reading {adapter.path(slot)} by numpy() with shard_optimizer=True"
        instead = ". A callback of the master's may read it, given to fit as tnt.callbacks.Callback(callback)"
        with collectives.explained(reading, MismatchError, instead=instead):
            numbers = collectives.all_gather(np.array(slot._tnt_number, np.int64)).tolist()
            for rank, number in enumerate(numbers):
                if number != numbers[0]:
                    there, here = (adapter.path(self._slots[n]) for n in (number, numbers[0]))
                    raise MismatchError(f"rank {rank} reads {there} while rank 0 reads {here}")

    def write(self, slot: Any, value: Any) -> None:
        """Gives a slot the value of the master, which works alone."""
        array = np.asarray(value, _numpy_dtype(slot))
        if array.shape != tuple(slot.shape):
            raise ValueError(f"{slot.path} has shape {tuple(slot.shape)}: it cannot take a value of shape {array.shape}")
        self._announce(_WRITE, slot._tnt_number)
        self.take(slot, array)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """In this context optimizers make a step: each rank assigns to its own slots alone."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    def in_step(self) -> bool:
        """Whether an optimizer makes a step."""
        return self._in_step

    def meet_to_assign(self, slot: Any, value: NDArray[Any]) -> None:
        """Checks that all ranks assign this value to this slot. What a rank assigns alone would be lost. Collective.

        Raises:
            MismatchError: a rank assigns something else, or does something else.
        """
        assigning = f"assigning to {adapter.path(slot)} with shard_optimizer=True"
        instead = ". All ranks must assign the same value"
        with collectives.explained(assigning, MismatchError, instead=instead):
            bits = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=7).digest()
            own = np.array([slot._tnt_number, int.from_bytes(bits, "little")], np.int64)
            found = collectives.all_gather(own).tolist()
            for rank, (number, value_bits) in enumerate(found):
                if number != found[0][0]:
                    there, here = (adapter.path(self._slots[n]) for n in (number, found[0][0]))
                    raise MismatchError(f"rank {rank} assigns to {there} while rank 0 assigns to {here}")
                if value_bits != found[0][1]:
                    raise MismatchError(f"rank {rank} assigns another value than rank 0")

    def take(self, slot: Any, value: NDArray[Any] | None) -> None:
        """Gives a slot the value that the master has. Collective. value: None on the other ranks."""
        sent = _sent(slot, value, 0)
        if slot.is_here:
            slot.assign_here(sent)

    @contextmanager
    def served(self) -> Iterator[None]:
        """In this context the master may read and write slots alone. The others answer first, until it leaves the context."""
        if not runtime.is_master_rank():
            self._serve()
            yield
        elif self._is_asking:
            yield
        else:
            self._is_asking = True
            try:
                yield
            finally:
                self._is_asking = False
                self._announce(_END, 0)

    def _serve(self) -> None:
        while True:
            what, number = collectives.broadcast(np.zeros(2, np.int64), 0).tolist()
            if what == _END:
                return
            slot = self._slots[number]
            if what == _READ:
                _sent_by_owner(slot)
            else:
                self.take(slot, None)

    def _announce(self, what: int, number: int) -> None:
        collectives.broadcast(np.array([what, number], np.int64), 0)


def _numpy_dtype(slot: Any) -> Any:
    return tf.as_dtype(adapter.dtype_of(slot)).as_numpy_dtype


def _sent_by_owner(slot: Any) -> NDArray[Any]:
    return _sent(slot, slot.own_value() if slot.is_here else None, slot._tnt_owner)


def _sent(slot: Any, value: NDArray[Any] | None, root: int) -> NDArray[Any]:
    """The value of the rank `root`, on all ranks."""
    shape, dtype = tuple(slot.shape), np.dtype(_numpy_dtype(slot))
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    own = np.empty(count, np.uint8) if value is None else np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    sent: NDArray[Any] = np.ascontiguousarray(collectives.broadcast(own, root)).view(dtype).reshape(shape)
    return sent
