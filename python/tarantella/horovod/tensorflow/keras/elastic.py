"""`hvd.elastic` of `horovod.tensorflow.keras`: the state of a model that `fit` trains, and callbacks that count its steps."""

from typing import Any

from tarantella.horovod.tensorflow.elastic import TensorFlowKerasState
from tarantella.horovod.tensorflow.elastic import run as run
from tarantella.keras.adapter import keras


class KerasState(TensorFlowKerasState):
    """A compiled model, and values of the script, such as ``batch=0, epoch=0``."""


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state after so many batches, and at the end of each epoch.

    Args:
        batches_per_commit: a commit copies all weights.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._since = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._since = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._since += 1
        if self._since < self.batches_per_commit or batch + 1 == (self.params or {}).get("steps"):  # the epoch's end follows
            return
        _note(self.state, lambda progress: progress.note_batch(batch))
        if any(progress.ends_epoch() for progress in getattr(self.state, "progress_callbacks", ())):  # it follows, too
            return
        self._since = 0
        self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._since = 0
        _note(self.state, lambda progress: progress.note_epoch(epoch))
        self.state.commit()


def _note(state: Any, action: Any) -> None:
    """The callbacks below may stand behind a `CommitStateCallback`: the commit must know this batch nevertheless."""
    for progress in getattr(state, "progress_callbacks", ()):
        action(progress)


class _ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        state.progress_callbacks = [*getattr(state, "progress_callbacks", ()), self]

    def note_batch(self, batch: int) -> None:
        """The batch was trained."""

    def note_epoch(self, epoch: int) -> None:
        """The epoch has ended."""

    def ends_epoch(self) -> bool:
        """Whether this callback ends the epoch after the batch that was noted last."""
        return False


class UpdateBatchStateCallback(_ProgressCallback):
    """Counts the batches of the epoch in ``state.batch``. The first epoch after a restart or loss has those that are left."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._before = 0
        self._stops = False

    def on_train_begin(self, logs: Any = None) -> None:
        steps = (self.params or {}).get("steps")
        self._before = self.state.batch if steps is None or self.state.batch < steps else 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.note_batch(batch)
        if self.ends_epoch() and not self.model.stop_training:
            self._stops = self.model.stop_training = True  # ends this epoch, and the training unless it is taken back

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.note_epoch(epoch)
        if self._stops:
            self._stops = self.model.stop_training = False

    def ends_epoch(self) -> bool:
        steps = (self.params or {}).get("steps")
        return bool(self._before) and steps is not None and self.state.batch >= steps

    def note_batch(self, batch: int) -> None:
        self.state.batch = self._before + batch + 1

    def note_epoch(self, epoch: int) -> None:
        self._before = self.state.batch = 0


class UpdateEpochStateCallback(_ProgressCallback):
    """Counts the epochs in ``state.epoch``: `fit` may begin to count at 0, or at ``initial_epoch=state.epoch``."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._before: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._before is None:
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.note_epoch(epoch)

    def note_epoch(self, epoch: int) -> None:
        self.state.epoch = (self._before or 0) + epoch + 1
