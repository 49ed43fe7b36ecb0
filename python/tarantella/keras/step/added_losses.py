"""Losses that layers add by `add_loss` inside Keras' own training step.

An added sum over samples is scaled in each step, so that the mean over ranks is the sum. Regularizers of Keras need nothing:
those of weights are the same on all ranks, and those of activities are divided by the number of samples.
"""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step import batch_sums
from tarantella.keras.step.current_step import CurrentStep
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.step.patch import Attribute


class AddedLosses:
    """The losses that the layers of a model add.

    Args:
        kinds: tells those that are sums over samples.
    """

    def __init__(self, model: Any, kinds: LossKinds) -> None:
        self._model = model
        self._kinds = kinds
        self._calls: dict[int, int] = {}  # how often each layer has added a loss in this step, by the layer's id

    def begin_step(self) -> None:
        """A step begins to be traced or run."""
        self._calls.clear()

    def hooks(self, step: CurrentStep) -> Iterator[Attribute]:
        """The `add_loss` of the layers that add sums."""
        sums = self._kinds.added_by_sums
        if sums:

            def sums_of_step() -> batch_sums.BatchSums | None:
                return sums.get(step.is_training) if step.is_running else None  # what a prediction adds counts nowhere

            yield from batch_sums.hooks(self._model, "call", sums_of_step, step)
        summed = {layer for _, layer, _ in self._kinds.summed_added}
        for layer in adapter.layers_of(self._model):
            if id(layer) in summed:
                yield layer, "add_loss", self._scaled(layer, layer.add_loss, step)

    def _scaled(self, layer: Any, original: Callable[..., Any], step: CurrentStep) -> Callable[..., Any]:
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def add_loss(loss: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._calls[id(layer)] = self._calls.get(id(layer), -1) + 1
            is_sum = step.is_running and (step.is_training, id(layer), place) in self._kinds.summed_added
            if not is_sum or step.counts_alone():
                return original(loss, *args, **kwargs)
            weight = step.weight()

            def scaled(value: Any) -> Any:
                if callable(value):
                    return value
                tensor = tf.convert_to_tensor(value)
                return tensor * tf.cast(tf.math.divide_no_nan(tf.ones((), weight.dtype), weight), tensor.dtype)

            return original(tf.nest.map_structure(scaled, loss), *args, **kwargs)

        return add_loss  # type: ignore[no-any-return]
