"""The batch that a step was given last, so that the step can be made again: what an iterator has given cannot be put back."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.first_elements import OfSpec
from tarantella.keras.adapter.iterators import iterator_of
from tarantella.keras.data import split
from tarantella.keras.data.last_elements import looked_at


class LastBatch:
    """Keeps the last element that a dataset's iterators gave. The memory is the element's own: nothing is copied.

    Args:
        dataset: of elements whose specs are tensors, or composites of them.

    Attributes:
        dataset: gives the same elements.
        cardinality: how many, as TensorFlow tells it.
        noted: the fingerprint of the last one that was noted; None if none was.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._spec = dataset.element_spec
        self.noted: int | None = None
        self.cardinality = int(dataset.cardinality())
        parts = tf.nest.flatten(self._spec, expand_composites=True)
        with tf.device("CPU:0"):
            self._kept = [tf.Variable(_nothing(part.dtype), shape=tf.TensorShape(None), trainable=False) for part in parts]
        self.dataset = looked_at(dataset, self._keep)

    def _keep(self, element: Any) -> None:
        for variable, tensor in zip(self._kept, tf.nest.flatten(element, expand_composites=True), strict=True):
            variable.assign(tensor)

    def fingerprint(self) -> int:
        """A hash of this element's dense tensors."""
        return int(split.fingerprint([variable.read_value() for variable in self._kept]))

    def note(self) -> None:
        """Notes the element that was given last, by which ranks are compared later."""
        self.noted = self.fingerprint()

    def again(self) -> Any:
        """An iterator that has this element alone."""
        tensors: Sequence[tf.Tensor] = [variable.read_value() for variable in self._kept]
        element = tf.nest.pack_sequence_as(self._spec, tensors, expand_composites=True)
        return iterator_of(OfSpec(tf.data.Dataset.from_tensors(element), self._spec))


def _nothing(dtype: tf.DType) -> tf.Tensor:
    return tf.constant("" if dtype == tf.string else 0, dtype) if dtype != tf.bool else tf.constant(False)
