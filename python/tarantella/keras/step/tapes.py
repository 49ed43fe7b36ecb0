"""The gradients that tapes give in a step of the user's own: others may stand in their place.

A step that computes with its gradients, as one that clips them does, needs those of the whole batch. They are reduced where its
tape makes them, and the optimizer takes what the step made of them.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.reduction import gradients


@contextmanager
def replaced(take: Callable[[Callable[[], Any], Any, list[Any]], list[Any]]) -> Iterator[None]:
    """In this context `tf.GradientTape.gradient` gives other gradients of variables; those of anything else stay.

    Args:
        take: of a function that takes the gradients (in the order of all sources), of what is differentiated, and of the
            variables among the sources, gives the gradients of these variables.
    """
    taken = tf.GradientTape.gradient

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(tape: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        flat = tf.nest.flatten(sources)
        places = [i for i, source in enumerate(flat) if adapter.is_variable(source)]
        if not places:
            return taken(tape, target, sources, output_gradients, **options)
        found: list[Any] = []

        def own() -> list[Any]:
            found.extend(gradients.flatten_up_to(sources, taken(tape, target, sources, output_gradients, **options)))
            return [found[i] for i in places]

        given = take(own, target, [flat[i] for i in places])
        result = found or [None] * len(flat)
        for place, value in zip(places, given, strict=True):
            result[place] = value
        return tf.nest.pack_sequence_as(sources, result) if tf.nest.is_nested(sources) else result[0]

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = taken


def reduced(reduce: Callable[[list[Any], list[Any]], list[Any]]) -> AbstractContextManager[None]:
    """The context in which tapes give gradients that ranks have reduced. reduce: of gradients and their variables."""

    def take(own: Callable[[], Any], target: Any, variables: list[Any]) -> list[Any]:
        found = own()
        return [with_gradient_of(*pair) for pair in zip(found, reduce(found, variables), strict=True)]

    return replaced(take)


def with_gradient_of(own: Any, value: Any) -> Any:
    """The value, whose gradient is that of this rank's own.

    A step may differentiate its gradients again, as one that penalises their norm does: the weighted sum over ranks is then
    right as well.
    """
    if not isinstance(own, tf.Tensor) or not isinstance(value, tf.Tensor):
        return value
    constant = tf.stop_gradient(value)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def passed(_: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(constant), lambda upstream: upstream

    return passed(own)
