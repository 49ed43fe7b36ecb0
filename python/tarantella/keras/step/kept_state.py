"""Variables that a step changes by a mean or a sum over its samples: ranks bring the changes together in the step."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.reduction import collectives


@contextmanager
def agreed(means: Sequence[Any], sums: Sequence[Any], weight: Callable[[], tf.Tensor]) -> Iterator[None]:
    """In this context a step computes. At its end the variables have the values that the whole batch gives them. Collective.

    Args:
        means: variables that the step changes by a mean over samples.
        sums: variables that it changes by a sum.
        weight: gives this rank's part of the batch: a scalar, float64.
    """
    variables = [adapter.unwrap(variable) for variable in (*means, *sums)]
    before = [variable.read_value() for variable in variables]
    yield
    if not variables:
        return
    part = weight()
    factors = [part] * len(means) + [tf.cast(part > 0, part.dtype)] * len(sums)
    changes = defaultdict(list)  # by type: one message for each
    for variable, old, factor in zip(variables, before, factors, strict=True):
        change = variable.read_value() - old
        weighted = tf.where(factor > 0, change * tf.cast(factor, change.dtype), tf.zeros_like(change))
        changes[change.dtype].append((variable, old, weighted))
    for same_type in changes.values():
        flat = collectives.total(tf.concat([tf.reshape(change, [-1]) for _, _, change in same_type], 0))
        totals = tf.split(flat, [int(change.shape.num_elements()) for _, _, change in same_type])
        for (variable, old, _), change in zip(same_type, totals, strict=True):
            variable.assign(old + tf.reshape(change, old.shape))
