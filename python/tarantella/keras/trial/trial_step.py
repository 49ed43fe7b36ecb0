"""The step that a loss is computed in while it is tried."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from tarantella.keras.step.losses import LossKinds
from tarantella.keras.trial.comparison import NotComparable

_runs = itertools.count(1)


class TrialStep:
    """Stands where `CurrentStep` does in a step on ranks: of the whole, then of its parts.

    The sum of what the parts' losses divide by is what that of the whole divides by.
    """

    def __init__(self, loss_kinds: LossKinds) -> None:
        self.loss_kinds = loss_kinds
        self.number_of_run = 0
        self.divisors: list[Any] = []
        """Those of the losses that were computed in the last context, in their order."""
        self.given: Mapping[tuple[int, int], Any] = {}
        """The results that some calls of losses have in the last context, by the loss' id and the number of the call."""
        self._weight: Any = 1.0
        self._whole_divisors: Any = None

    @contextmanager
    def computing(
        self, weight: Any, whole_divisors: Any = None, given: Mapping[tuple[int, int], Any] = MappingProxyType({})
    ) -> Iterator[None]:
        """In this context losses of a part are computed, or those of the whole.

        Args:
            weight: of the part, a number or a scalar.
            whole_divisors: the divisors of the whole; None while the whole is computed.
            given: the results of calls of losses that are not to be computed.
        """
        self.number_of_run = next(_runs)
        self._weight, self._whole_divisors, self.divisors, self.given = weight, whole_divisors, [], given
        yield

    def weight(self) -> tf.Tensor:
        """The part that these samples are of the whole."""
        return tf.cast(self._weight, tf.float64)

    @property
    def weight_of_gradients(self) -> Callable[[], tf.Tensor]:
        """Gives the same."""
        return self.weight

    def counts_alone(self) -> bool:
        """No."""
        return False

    def is_stated(self) -> bool:
        """No: losses are tried on rows of what they are given."""
        return False

    def total(self) -> tf.Tensor | None:
        """None: a loss that ranks compute from all samples is tried on those of its part, too."""
        return None

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The divisor of the loss of the whole."""
        place = len(self.divisors)
        self.divisors.append(tf.cast(divisor, tf.float64))
        if self._whole_divisors is None:
            return divisor
        if place >= len(self._whole_divisors):
            raise NotComparable("it computes more losses of a part of the samples than of all")
        return tf.cast(self._whole_divisors[place], divisor.dtype)
