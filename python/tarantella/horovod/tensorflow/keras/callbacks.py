"""The callbacks for `fit` of a plain Keras model on all ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tarantella import runtime
from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow import graphs
from tarantella.horovod.tensorflow.collectives import Average, allreduce
from tarantella.horovod.tensorflow.functions import broadcast_variables
from tarantella.keras import adapter
from tarantella.keras.adapter import keras, learning_rates

_TRAIN_EAGERLY = "let Keras train in TensorFlow 2, without tf.compat.v1.disable_eager_execution"


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the weights of `root_rank` before training, and the optimizer's state after the first batch."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        graphs.refuse(type(self).__name__, _TRAIN_EAGERLY)
        self._root = root_rank
        self._local = {id(variable) for variable in local_variables or ()}
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        if self.model.built:
            self._broadcast(adapter.variables(self.model))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            self._done = True
            self._broadcast([*adapter.variables(self.model), *adapter.optimizer_variables(self.model)])

    def _broadcast(self, variables: Any) -> None:
        once = {id(variable): variable for variable in variables if id(variable) not in self._local}
        broadcast_variables(list(once.values()), self._root)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces the metrics of an epoch by their means over the ranks. Put it before callbacks that use them.

    Args:
        device: ignored.
        process_set: over its ranks; those outside of it keep theirs.
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        graphs.refuse(type(self).__name__, _TRAIN_EAGERLY)
        self._process_set = process_set

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        names = sorted(logs or {})
        if logs and names and self._process_set.group().contains_global_rank(runtime.get_rank()):
            values = np.array([float(logs[name]) for name in names], np.float64)
            means = allreduce(values, op=Average, name=f"metrics {' '.join(names)}"[:90], process_set=self._process_set)
            logs.update(zip(names, map(float, means.numpy()), strict=True))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to ``initial_lr * multiplier(epoch)`` in the epochs from `start_epoch` to before `end_epoch`.

    Args:
        multiplier: a number, or a function of the epoch.
        staircase: whether the rate changes at the begin of epochs only, not with each batch.
        momentum_correction: accepted: optimizers of Keras have no momentum that can change.
        steps_per_epoch: of `fit`, if that does not know it.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = (staircase and callable(multiplier)) or not callable(multiplier)
        self.steps_per_epoch = steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        if not learning_rates(self.model):
            raise ValueError("the optimizer has a schedule for its learning rate, which no callback can set: give it a number")
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__}: fit does not know the steps of an epoch: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.current_epoch < self.start_epoch or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._set(self.multiplier(self.current_epoch))
        elif not self.staircase:
            self._set(self.multiplier(self.current_epoch + batch / float(self.steps_per_epoch or 1)))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()

    def _set(self, factor: float) -> None:
        for rate in learning_rates(self.model):
            rate.assign(self.initial_lr * factor)

    def _rate(self) -> float:
        return float(learning_rates(self.model)[0].numpy())


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from ``initial_lr / size`` to `initial_lr` in the first epochs, with each batch."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / float(self.steps_per_epoch or 1)  # the last batch of the warm-up has the whole rate
            size = runtime.get_size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, end_epoch=int(warmup_epochs), staircase=False, steps_per_epoch=steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == (self.end_epoch or 0) - 1 and self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keras' `ModelCheckpoint` with ``save_best_only=True``."""

    def __init__(
        self, filepath: str, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: Any = "epoch"
    ) -> None:
        super().__init__(filepath, monitor=monitor, verbose=verbose, save_best_only=True, mode=mode, save_freq=save_freq)
