"""A dataset whose first elements are looked at before whoever iterates over it gets them.

What is taken from an iterator cannot be put back, and a second iterator may give something else: a shuffle draws a new seed for
each, and a generator goes on where it stopped. So the elements that were looked at are given by an iterator of their own. Once
they are taken, the iterator that Keras holds becomes the one that has the rest. TensorFlow has no public way to do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

if TYPE_CHECKING:
    from collections.abc import Callable


class WatchedDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """The same elements as those of a dataset.

    Args:
        dataset: where they come from.
        at_once: how many elements the user of an iterator takes before `go_on` is called.
        look: is given the first element when an iterator is made. Its errors are those of the iteration.
    """

    def __init__(self, dataset: tf.data.Dataset, at_once: int, look: Callable[[Any], None]) -> None:
        self._dataset, self._at_once, self._look = dataset, at_once, look
        self._held: tuple[Any, Any] | None = None  # the iterator that was given out, and the one that has the rest
        self._last: Any = None  # the iterator that was given out
        super().__init__(dataset, tf.data.experimental.to_variant(dataset))

    def __iter__(self) -> Any:
        if self._last is not None:  # Keras has it until it gets the next one: what it reads, such as a cache, is free again
            self._last._iterator_resource = iter(tf.data.Dataset.range(0))._iterator_resource
        self._last = rest = iter(self._dataset)
        first = self._taken(rest, self._at_once)
        if not first:
            return rest
        self._look(first[0])
        self._last = given = iter(self._of(first))
        self._held = given, rest
        return given

    def go_on(self) -> None:
        """Some elements were taken: the iterator goes on with the others."""
        if self._held is None:
            return
        given, rest = self._held
        left = self._taken(given, self._at_once)  # none, unless fewer were taken than were given
        if left:
            rest_of_left = iter(self._of([*left, *self._taken(rest, self._at_once - len(left))]))
            given._iterator_resource = rest_of_left._iterator_resource
        else:
            given._iterator_resource = rest._iterator_resource
            self._held = None

    def _taken(self, iterator: Any, n: int) -> list[Any]:
        elements = []
        for _ in range(n):
            element = iterator.get_next_as_optional()
            if not element.has_value():
                break
            elements.append(element.get_value())
        return elements

    def _of(self, elements: list[Any]) -> tf.data.Dataset:
        joined = tf.data.Dataset.from_tensors(elements[0])
        for element in elements[1:]:
            joined = joined.concatenate(tf.data.Dataset.from_tensors(element))
        return _OfSpec(joined, self.element_spec)


class _OfSpec(dataset_ops.UnaryDataset):  # type: ignore[misc]
    """The dataset with a more general spec of its elements: one trace of a step serves for all of them."""

    def __init__(self, dataset: tf.data.Dataset, spec: Any) -> None:
        self._spec = spec
        super().__init__(dataset, tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        return self._spec
