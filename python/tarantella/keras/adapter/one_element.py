"""An iterator that gives the same element whenever it is asked, for functions that were traced for iterators over a dataset.

It holds the tensors that an iterator passes to TensorFlow's functions. They become an element in the function, where that costs
nothing in a step.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.data.util import structure


class Elements(tf.TypeSpec):  # type: ignore[misc]
    """Takes the elements of iterators over a dataset. A function that is given them is traced once for all of them.

    Args:
        spec: that of the dataset's elements.
    """

    def __init__(self, spec: Any) -> None:
        self.element_spec = spec
        self._types = structure.get_flat_tensor_types(spec)
        self._shapes = structure.get_flat_tensor_shapes(spec)
        self._tensors = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(self._shapes, self._types, strict=True)]

    def next_of(self, iterator: Any) -> "OneElement":
        """The next element of an iterator. Raises tf.errors.OutOfRangeError if there is none."""
        resource = iterator._iterator_resource
        tensors = tf.raw_ops.IteratorGetNext(iterator=resource, output_types=self._types, output_shapes=self._shapes)
        return OneElement(self, tensors)

    def element(self, tensors: list[tf.Tensor]) -> Any:
        """The element of which an iterator has given these tensors."""
        return structure.from_compatible_tensor_list(self.element_spec, tensors)

    @property
    def value_type(self) -> type:
        """As of `tf.TypeSpec`."""
        return OneElement

    @property
    def _component_specs(self) -> Any:
        return self._tensors

    def _serialize(self) -> tuple[Any]:
        return (self.element_spec,)

    def _to_components(self, value: "OneElement") -> Any:
        return value.tensors

    def _from_components(self, components: Any) -> "OneElement":
        return OneElement(self, components)


class OneElement(tf.data.Iterator):  # type: ignore[misc]
    """An iterator as `Elements.next_of` gives it.

    Attributes:
        elements: the `Elements` whose `next_of` returned it.
        tensors: of the element, in a form of TensorFlow's own.
    """

    def __init__(self, elements: Elements, tensors: list[tf.Tensor]) -> None:
        self.elements, self.tensors = elements, tensors

    @property
    def element_spec(self) -> Any:
        """As of `tf.data.Iterator`."""
        return self.elements.element_spec

    def get_next(self) -> Any:
        """The element."""
        return self.elements.element(list(self.tensors))

    def get_next_as_optional(self) -> tf.experimental.Optional:
        """As of `tf.data.Iterator`."""
        return tf.experimental.Optional.from_value(self.get_next())

    def __next__(self) -> Any:
        return self.get_next()

    @property
    def _type_spec(self) -> tf.TypeSpec:
        return self.elements
