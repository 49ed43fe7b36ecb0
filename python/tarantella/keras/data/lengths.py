"""Datasets of the ranks' own, of unknown length: that one ends before another is an error on all ranks, at that batch.

Otherwise the rank whose data is over would wait for the others at the end of the epoch, and they for its gradients.
"""

from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.collectives import wire
from tarantella.errors import mark
from tarantella.keras.data.split import map_in_order
from tarantella.keras.reduction import communicator, ops


def checked(dataset: tf.data.Dataset, name: str) -> tf.data.Dataset:
    """The dataset, whose iterators compare the ranks at each batch. All ranks must take batch after batch. Collective.

    A dataset of known length stays as it is if it is on all ranks: their lengths were compared before. The check costs a
    reduction of one number for each rank. Nothing may prefetch behind it: a rank that stops would be waited for.

    Args:
        name: of the data, for the error.
    """
    if not int(collectives.all_reduce(int(dataset.cardinality() < 0), "max")):
        return dataset
    attachment = communicator.attachment_for("lengths of datasets")

    def compare(number: tf.Tensor) -> tf.Tensor:
        """number: of this rank's batch, from 1; 0 if there is none. Returns the greatest one."""
        own = tf.one_hot(runtime.get_rank(), runtime.get_size(), on_value=number, off_value=tf.constant(0, tf.int64))
        numbers = ops.library().tnt_all_reduce(own, communicator=attachment, op=int(wire.operation("sum")))
        last = tf.reduce_max(numbers)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_min(numbers) == last, [_problem(name, numbers, last)])]):
            return tf.identity(last)

    def with_number(number: tf.Tensor, element: Any) -> Any:
        with tf.control_dependencies([compare(number + 1)]):
            return tf.nest.map_structure(tf.identity, element, expand_composites=True)

    def end(_: tf.Tensor) -> tf.data.Dataset:
        return dataset.take(compare(tf.constant(0, tf.int64)))  # none, or there was an error

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    unconverted = tf.autograph.experimental.do_not_convert(end)
    nothing = tf.data.Dataset.range(1).flat_map(unconverted)
    return map_in_order(dataset.enumerate(), with_number).concatenate(nothing).with_options(options)


def _problem(name: str, numbers: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """In words: the batches of all ranks had the same numbers so far."""

    def ranks(chosen: tf.Tensor) -> tf.Tensor:
        return tf.strings.reduce_join(tf.strings.as_string(tf.where(chosen)[:, 0]), separator=", ")

    before, after = mark(
        "TNT_MISMATCH",
        f"{name}: the ranks have different numbers of batches: rank \0: give all ranks as many, as by take(n), or say "
        "steps_per_epoch",
    ).split("\0")
    so_many = tf.strings.as_string(last - 1)
    return tf.strings.join(
        [before, ranks(numbers == 0), " has ", so_many, " in this epoch, rank ", ranks(numbers > 0), " more", after]
    )
