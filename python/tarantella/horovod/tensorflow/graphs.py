"""Graphs of TensorFlow 1, which a `tf.compat.v1.Session` runs: what cannot work in them is refused by name."""

import tensorflow as tf

from tarantella.errors import UnsupportedError


def in_graph() -> bool:
    """Whether operations are added to such a graph now: neither eagerly nor inside a `tf.function`."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def _executing_eagerly() -> bool:
    """Whether operations run at once: for scripts that ask `horovod.tensorflow.util`."""
    return bool(tf.executing_eagerly())


def refuse(what: str, instead: str) -> None:
    """Raises UnsupportedError in such a graph.

    Args:
        what: the function, as the user knows it.
        instead: the user's alternative.
    """
    if in_graph():
        raise UnsupportedError(f"{what} does not work in a graph of TensorFlow 1 (tf.Graph and Session): {instead}")
