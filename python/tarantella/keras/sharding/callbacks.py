"""Callbacks that run on the master alone and read the optimizer's state."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tarantella.keras import adapter


class ServedCallbacks(adapter.Callback):
    """Runs callbacks of the master's; at the end of an epoch the other ranks answer them.

    Args:
        callbacks: none on other ranks.
        served: gives the context in which they answer.
    """

    def __init__(self, callbacks: Sequence[Any], served: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._callbacks = list(callbacks)
        self._served = served

    def on_train_begin(self, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with self._served():
            for callback in self._callbacks:
                callback.on_epoch_end(epoch, logs)
