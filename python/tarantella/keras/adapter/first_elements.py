"""A dataset whose first elements are looked at before whoever iterates over it gets them.

What is taken from an iterator cannot be put back, and a second iterator may give something else: a shuffle draws a new seed for
each, and a generator goes on where it stopped. So the iterator that Keras holds becomes, for a while, one that has just the
elements that were looked at. Once they are taken, it has the rest again. TensorFlow has no public way to do that.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tarantella.keras.adapter.iterators import iterator_of


class WatchedDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """The same elements as those of a dataset.

    An iterator is asked for nothing before its user calls `look`: Keras makes iterators that it never uses.

    Args:
        dataset: where they come from.
        at_once: how many elements the user of an iterator takes before `go_on` is called.
        given_to: is given the first element of the iterator that was made last. Its errors are those of `look`. None: nobody
            looks.
    """

    def __init__(self, dataset: tf.data.Dataset, at_once: int, given_to: Callable[[Any], None] | None) -> None:
        self._dataset, self._at_once, self._given_to = dataset, at_once, given_to
        self._fresh: Any = None  # the iterator that was made last, if nobody has looked yet
        self._held: tuple[Any, Any] | None = None  # an iterator that has what was looked at, and the resource with the rest
        super().__init__(dataset, tf.data.experimental.to_variant(dataset))

    def __iter__(self) -> Any:
        self._fresh, self._held = iterator_of(self._dataset), None
        return self._fresh

    def look(self) -> None:
        """The iterator that was made last is about to be used: its first element is looked at, once."""
        iterator, self._fresh = self._fresh, None
        if iterator is None or self._given_to is None:
            return
        first = self._taken(iterator, self._at_once)
        if first:
            self._given_to(first[0])
            self._hold(iterator, first, iterator._iterator_resource)

    def go_on(self) -> None:
        """Some elements were taken: the iterator goes on with the others."""
        if self._held is None:
            return
        iterator, rest = self._held
        left = self._taken(iterator, self._at_once)  # none, unless fewer were taken than were given
        iterator._iterator_resource, self._held = rest, None
        if left:
            self._hold(iterator, [*left, *self._taken(iterator, self._at_once - len(left))], rest)

    def _hold(self, iterator: Any, elements: list[Any], rest: Any) -> None:
        """The iterator has these elements until `go_on`."""
        iterator._iterator_resource, self._held = iter(self._joined_dataset(elements))._iterator_resource, (iterator, rest)

    def _taken(self, iterator: Any, n: int) -> list[Any]:
        elements = []
        for _ in range(n):
            element = iterator.get_next_as_optional()
            if not element.has_value():
                break
            elements.append(element.get_value())
        return elements

    def _joined_dataset(self, elements: list[Any]) -> tf.data.Dataset:
        joined = tf.data.Dataset.from_tensors(elements[0])
        for element in elements[1:]:
            joined = joined.concatenate(tf.data.Dataset.from_tensors(element))
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and the thread that tunes is slow to end
        return OfSpec(joined.with_options(options), self.element_spec)


class OfSpec(dataset_ops.UnaryDataset):  # type: ignore[misc]
    """The dataset with a more general spec of its elements: one trace of a step serves for all of them."""

    def __init__(self, dataset: tf.data.Dataset, spec: Any) -> None:
        self._spec = spec
        super().__init__(dataset, tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        return self._spec
