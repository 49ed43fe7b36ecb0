"""Whose samples a length is taken from: all ranks', in a step, or a whole batch's, in a trial of its parts.

A caller enters one of these contexts around the run of a model:

* `by_ranks`: a step. Ranks exchange each length, so all must run the same model in the same order.
* `WholeBatch.run`: a trial on a whole batch and then on its parts, which get the lengths of the whole. Nothing is communicated.
  It works eagerly, in functions, and in one function that is traced once for the whole and the parts.
* `decided`: any other way, as for shards (`reproducible`). `on_its_own` gives each run the lengths of its own samples.

Outside of all contexts, too, a length is that of the samples at hand. The innermost context counts.
"""

import functools
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

import tensorflow as tf

from tarantella.collectives import wire
from tarantella.errors import UnsupportedError
from tarantella.keras.adapter.random_operations import trace_apart
from tarantella.keras.adapter.tensorflow import own_variable
from tarantella.keras.lengths import decision, masks, ragged, time_distributed
from tarantella.keras.lengths.decision import Combination, Decide
from tarantella.keras.reduction import collectives

_MOST = 4096  # lengths in a run of a model


def decided(decide: Decide | None, mark: Hashable) -> AbstractContextManager[None]:
    """Context in which the lengths of the whole batch are made of those of the samples at hand by `decide`.

    mark: contexts that have the same one use the same traces of functions.
    """
    _install()
    return decision.entered(decide, mark)


def on_its_own() -> AbstractContextManager[None]:
    """Context in which lengths are those of the samples at hand."""
    return decided(None, None)


def by_ranks(samples: tf.Tensor) -> AbstractContextManager[None]:
    """Context of a step in which each rank has a part of a batch, of so many samples. Collective where a length is asked for.

    A rank without samples takes part, with the one that it computes in their place: it belongs to the batch.
    """

    def decide(own: tf.Tensor, combination: Combination) -> tf.Tensor:
        return over_ranks(counted(own, combination, samples), combination)

    return decided(decide, "by ranks")


def counted(own: tf.Tensor, combination: Combination, samples: tf.Tensor) -> tf.Tensor:
    """The length of a part that has so many samples, for a combination: a sample that does not count is not added."""
    return tf.where(samples > 0, own, tf.zeros_like(own)) if combination == "sum" else own


def over_ranks(own: tf.Tensor, combination: Combination) -> tf.Tensor:
    """The length of the whole batch, of those of all ranks. Collective."""
    whole: tf.Tensor = collectives.run("tnt_all_reduce", own, op=int(wire.operation(combination)))
    return whole


def refused(where: str) -> AbstractContextManager[None]:
    """Context in which no length of a whole batch can be known. where: it cannot, as a relative clause for the error."""
    return decided(lambda own, combination: refuse(where), "refused")


def refuse(where: str) -> NoReturn:
    """Raises for the layer that is being run."""
    raise UnsupportedError(
        f"{decision.place()} computes with a length of its whole batch (the longest row, or the number of samples), {where}: "
        "give it a fixed length, such as TextVectorization(output_sequence_length=...) or to_tensor(shape=...)"
    )


class WholeBatch:
    """The lengths of a batch that is run as a whole first, and then in parts. It is to be made outside of functions.

    Examples:
        >>> lengths = WholeBatch()
        >>> with lengths.run():
        ...     whole = model(batch)
        >>> with lengths.run():
        ...     part = model(batch[:2])     # padded as the whole was
    """

    def __init__(self) -> None:
        self._largest = own_variable(tf.zeros([_MOST], tf.int64))  # a function keeps no tensors for others
        self._asked_for = 0

    @contextmanager
    def run(self) -> Iterator[None]:
        """Context of one run, in which the model asks for the same lengths in the same order as in the others."""
        self._asked_for = 0
        with decided(self._decide, self):
            yield

    def _decide(self, own: tf.Tensor, _combination: Combination) -> tf.Tensor:
        begin, end = self._asked_for, self._asked_for + (own.shape.num_elements() or 1)
        if end > _MOST:
            refuse(f"of whose lengths no more than {_MOST} can be tried")
        self._asked_for = end
        places = tf.range(begin, end)[:, tf.newaxis]
        so_far = tf.gather_nd(self._largest.read_value(), places)
        self._largest.scatter_nd_update(places, tf.maximum(so_far, tf.reshape(own, [-1])))
        return tf.reshape(tf.gather_nd(self._largest.read_value(), places), own.shape)


@functools.cache
def _install() -> None:
    """Gets in front of what takes the lengths of a batch. It changes nothing outside of the contexts."""
    ragged.install()
    masks.install()
    time_distributed.install()
    trace_apart(decision.trace_mark)
