"""Looking at each element of a dataset when it is given, and not when something reads ahead."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def looked_at(dataset: tf.data.Dataset, look: Callable[[Any], None]) -> tf.data.Dataset:
    """The same dataset. The elements before the one that is given are prefetched, but nothing prefetches behind `look`.

    Several may look, one after another.

    Args:
        look: is called in a graph, with each element as the dataset has it.
    """
    single = not isinstance(dataset.element_spec, tuple)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def pass_on(*members: Any) -> Any:
        element = members[0] if single else members
        look(element)
        return element

    may_prefetch = dataset.options().experimental_optimization.inject_prefetch is not False  # else another one looks before
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    ahead = dataset.prefetch(tf.data.AUTOTUNE) if may_prefetch else dataset
    return ahead.map(pass_on).with_options(options)
