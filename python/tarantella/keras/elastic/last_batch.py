"""Keeps the batch of the current step, which may have to be made again: an iterator cannot take a batch back."""

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.one_element import Elements, OneElement
from tarantella.keras.data import split


class LastBatch:
    """The last element that a dataset's iterators gave. The memory is the element's own: nothing is copied.

    Args:
        dataset: whose iterators they are.

    Attributes:
        iterator: has this element alone, whenever it is asked; None: nothing was taken.
        cardinality: how many elements, as TensorFlow tells it.
        noted: the fingerprint of the last one that was noted; None if none was.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._elements = Elements(dataset.element_spec)
        self.iterator: OneElement | None = None
        self.cardinality = int(dataset.cardinality())
        self.noted: int | None = None

    def take(self, iterator: Any) -> None:
        """Takes the next element of an iterator over the dataset. Raises tf.errors.OutOfRangeError if there is none."""
        self.iterator = self._elements.next_of(iterator)

    def fingerprint(self) -> int:
        """A hash of this element's dense tensors."""
        element = None if self.iterator is None else self.iterator.get_next()
        return int(split.fingerprint(tf.nest.flatten(element, expand_composites=True)))

    def note(self) -> None:
        """Notes the element that was taken last, by which ranks are compared later."""
        self.noted = self.fingerprint()
