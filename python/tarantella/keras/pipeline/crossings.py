"""What travels between the stages of a pipeline."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf


class Kind(enum.Enum):
    """What a crossing is."""

    TENSOR = "tensor"
    """A tensor of the graph, forward, and its gradient, back."""
    LOSSES = "losses"
    """The losses that a stage's layers add, forward to the stage that adds up all losses."""
    VARIABLE = "variable"
    """The gradient of a variable that several stages use, back to the first of them."""


class Part(NamedTuple):
    """An array that is sent: its type, and its shape, without the axis of samples if it has rows for them."""

    dtype: tf.DType
    tail: tuple[int, ...]
    has_rows: bool = True

    @property
    def bytes(self) -> int:
        """The bytes; those for each sample, if it has rows."""
        size: int = self.dtype.size
        for length in self.tail:
            size *= length
        return size


@dataclass(frozen=True)
class Crossing:
    """Something that one stage has and later ones need, or whose gradient later ones have.

    Attributes:
        name: of the layer or operation that makes it; of a variable.
        key: the id of the symbolic tensor, or of the variable; of losses a number for each stage.
        parts: the tensor, and its mask if it has one.
    """

    name: str
    key: int
    producer: int
    consumers: tuple[int, ...]
    parts: tuple[Part, ...]
    kind: Kind = Kind.TENSOR

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that have it, in their order."""
        return (self.producer, *self.consumers)

    @property
    def goes_forward(self) -> bool:
        """Whether it is sent itself."""
        return self.kind is not Kind.VARIABLE

    @property
    def is_differentiable(self) -> bool:
        """Whether its gradient goes back."""
        return self.kind is Kind.VARIABLE or (self.kind is Kind.TENSOR and bool(self.parts[0].dtype.is_floating))
