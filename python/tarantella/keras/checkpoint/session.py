"""What a `Checkpoint` does in one call of `fit`: finds the newest good one, brings the training there, and writes new ones."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.collectives.objects import broadcast_object
from tarantella.errors import InvalidArgumentError
from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback_states, randomness, state
from tarantella.keras.checkpoint.folder import Folder
from tarantella.keras.checkpoint.position import (
    FingerprintedDataset,
    Position,
    Replay,
    changed,
    depends_on_iterators_only,
    runs_python,
)
from tarantella.keras.checkpoint.schedule import Schedule
from tarantella.keras.checkpoint.writer import Writer
from tarantella.keras.step.patch import Patch
from tarantella.seeding import global_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tarantella.keras.checkpoint.callback import Checkpoint

_MUTED = ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end")
_FREE, _BUSY, _FAILED = range(3)

_fits: dict[str, int] = {}  # how many calls of `fit` in this process have used each folder and come to their end


class NullSession:
    """A `fit` without a `Checkpoint`; and what `CheckpointSession` is asked for. Methods are collective, but for `running`."""

    @property
    def seed(self) -> int | None:
        """That of TensorFlow with which the training began; None if it has not begun yet."""
        return None

    def watched(self, dataset: tf.data.Dataset, steps: int | None, has_shares: bool = True) -> tf.data.Dataset:
        """The data that `fit` shall train on in the place of this.

        Args:
            dataset: of batches.
            steps: as `fit` gets ``steps_per_epoch``.
            has_shares: whether batches come with their shares.
        """
        return dataset

    def outcome(self) -> Any:
        """The `History` of a training that is over already, after the model was given its state; None if it is not over."""
        return None

    def around(self, callbacks: Sequence[Any], verbose: Any, epochs: Any) -> list[Any]:
        """What Keras is to call in `fit`.

        Args:
            callbacks: what it would be without checkpoints.
            verbose: as `fit` takes it.
            epochs: the callback that tells the source of batches about epochs.
        """
        return [*callbacks, epochs]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keras' `fit` runs in this context: however it ends, nothing is half-written after it."""
        yield


class CheckpointSession(NullSession):
    """That of one call of `fit` with a `Checkpoint`, on every rank.

    Args:
        settings: the user's `Checkpoint`.
        callbacks: all others that were given to `fit`.
        model: the Keras model.
        hooks: the model's `StepHooks`; None on one rank.
        initial_epoch, epochs: as `fit` was told.
    """

    def __init__(
        self, settings: Checkpoint, callbacks: Sequence[Any], model: Any, hooks: Any, initial_epoch: int, epochs: int
    ) -> None:
        self._model, self._hooks = model, hooks
        self._callbacks = list(callbacks)
        self._initial_epoch, self._epochs = initial_epoch, epochs
        self._schedule = Schedule(settings.every_steps, settings.every_seconds, settings.every_epochs)
        self._noted: FingerprintedDataset | None = None
        self._steps: int | None = None  # in an epoch, if that is known
        self._data_is_python = False
        self._replay: Replay | None = None
        self._muted = False
        self._patch: Patch | None = None
        self._train_function: Any = None
        self._history = next((c for c in self._callbacks if isinstance(c, keras.callbacks.History)), keras.callbacks.History())
        self._writer: Writer | None = None
        self._variables: state.Stored | None = None  # on the master, until they are put back
        self._stored: dict[str, Any] = {}  # all else of the checkpoint that was found
        self._epoch, self._step, self._steps_done = initial_epoch, 0, 0
        self._epochs_done = initial_epoch
        self._due_at_end = False  # of the epoch
        self._stopped_within = False  # of an epoch, where it goes on next time
        self._seed = global_seed()
        self._is_over = False
        self._restart(settings)

    # -------------------------------------------------------------------------------------------- finding where to go on

    def _restart(self, settings: Checkpoint) -> None:
        failure: Exception | None = None
        found = None
        name = self._name = os.path.abspath(settings.folder)
        if runtime.is_master_rank():
            try:
                folder = Folder(Path(name), _fits.get(name, 0) + 1, settings.keep, runtime.logger.warning)
                self._writer = Writer(folder, runtime.logger.warning)
                found = folder.newest()
            except Exception as error:
                failure = error
        collectives.agree_on_failure(failure)
        stored = None
        if found is not None:
            path, stored = found
            self._variables = stored.pop("variables")
            runtime.logger.info("the newest good checkpoint is %s", path)
        self._stored = broadcast_object(stored) or {}
        if not self._stored:
            self._alike = randomness.alike_everywhere()
            self._begin = randomness.states()
            return
        fit = self._stored["fit"]
        if fit["initial_epoch"] != self._initial_epoch:
            raise InvalidArgumentError(
                f"fit is to begin with initial_epoch={self._initial_epoch}, and the checkpoint in {name} is of one with "
                f"initial_epoch={fit['initial_epoch']}: give the same, or begin anew with another folder"
            )
        self._alike, self._begin, self._seed = fit["alike"], fit["random"], fit["seed"]
        randomness.put_back(self._begin, python=self._alike or runtime.is_master_rank())
        self._is_over = self._was_over()
        if runtime.is_master_rank() and not self._is_over:
            try:
                callback_states.prepare(self._callbacks, self._stored["callbacks"])
            except OSError as error:
                failure = error
        collectives.agree_on_failure(failure)

    @property
    def seed(self) -> int | None:
        return self._seed

    def watched(self, dataset: tf.data.Dataset, steps: int | None, has_shares: bool = True) -> tf.data.Dataset:
        cardinality = int(dataset.cardinality())
        self._steps = steps or (cardinality if cardinality >= 0 else None)
        self._data_is_python = runs_python(dataset)
        self._noted = FingerprintedDataset(dataset, has_shares)
        if self._stored and not self._is_over:
            self._seek(self._noted, skips=steps is None and cardinality >= 0 and depends_on_iterators_only(dataset))
        return self._noted.dataset

    def _seek(self, noted: FingerprintedDataset, skips: bool) -> None:
        before = self._stored["fit"]["steps"]
        if None not in (before, self._steps) and before != self._steps:
            raise changed(f"an epoch has {self._steps} batches now, and had {before}: restore it")
        target = Position(**self._stored["position"])
        self._replay = Replay(self._model, noted, target, self._stored["batches"], self._initial_epoch, skips)
        how = "one batch is made of each epoch before" if skips else "all batches before are made again"
        runtime.logger.info("the training goes on with %s, at first without training: %s", target, how)

    def _was_over(self) -> bool:
        """Whether all epochs were done already, or a callback has ended the training after an epoch."""
        position, stopped = Position(**self._stored["position"]), self._stored["stopped"]
        if stopped and position.epoch < self._epochs:
            runtime.logger.warning(
                "a callback has ended this training after epoch %d of %d: it does not go on; to train on, use another folder",
                position.epoch,
                self._epochs,
            )
        return bool(stopped) or position.epoch >= self._epochs

    def outcome(self) -> Any:
        if not self._is_over:
            return None
        runtime.logger.info("the training is over already: the model gets its last state, and nothing is trained")
        self._put_back()
        randomness.put_back(self._stored["random"], python=self._alike or runtime.is_master_rank())
        self._history.set_model(self._model)
        self._model.history = self._history
        self._count()
        return self._history

    def _count(self) -> None:
        """The next call of `fit` with this folder is another one."""
        _fits[self._name] = _fits.get(self._name, 0) + 1

    # ------------------------------------------------------------------------------------------- going on where it was

    def around(self, callbacks: Sequence[Any], verbose: Any, epochs: Any) -> list[Any]:
        given = [*callbacks]
        if not any(isinstance(callback, keras.callbacks.History) for callback in given):
            given.append(self._history)
        if verbose != 0 and not any(isinstance(callback, keras.callbacks.ProgbarLogger) for callback in given):
            given.append(adapter.progress_bar())
        if self._replay is not None:
            given = [self._silenced(callback) for callback in given]
        return [_Before(self), *given, epochs, _After(self)]

    def _silenced(self, callback: Any) -> Any:
        """The same callback, which is not told of steps and epochs that are gone through without training."""

        def silent(hook: str) -> Any:
            original = getattr(type(callback), hook)

            def call(this: Any, *args: Any, **kwargs: Any) -> None:
                if not self._muted:
                    original(this, *args, **kwargs)

            return call

        hooks = placement.overridden(callback).intersection(_MUTED)
        return placement.sharing_state(callback, {hook: silent(hook) for hook in hooks})

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
            self._count()
        finally:
            self._end_replay()
            if self._writer is not None:
                self._writer.wait()

    # Keras calls these, through `_Before` and `_After`

    def begin_training(self) -> None:
        """After the callbacks' `on_train_begin`."""
        if self._replay is None:
            return
        self._muted = True
        self._train_function = self._model.train_function
        self._model.train_function = self._replay.step
        self._patch = Patch([(self._model, "evaluate", lambda *args, **kwargs: {})])
        self._patch.put_on()

    def before_epoch(self, epoch: int) -> None:
        """Before the callbacks' `on_epoch_begin`."""
        self._epoch, self._step = epoch, 0
        if self._replay is None:
            return
        self._replay.begin_epoch(epoch)
        if epoch == self._replay.target.epoch:
            self._muted = False
            if self._replay.is_there():
                self._arrive()

    def after_epoch_begin(self) -> None:
        """After it: the state of the middle of the epoch comes later."""
        self._muted = self._replay is not None

    def after_step(self, step: int, logs: Any) -> None:
        """After the callbacks' `on_train_batch_end`."""
        if self._replay is not None:
            if self._replay.is_there():
                self._arrive()
                self._muted = False
            return
        self._steps_done += step + 1 - self._step
        self._step = step + 1
        due = self._schedule.due_after_step(self._steps_done)
        if self._steps is not None and self._step >= self._steps:
            self._due_at_end = due
            return
        self._stopped_within = bool(self._model.stop_training)
        if due or (self._stopped_within and _is_finite(logs)):
            self._save(Position(self._epoch, self._step, self._steps_done), must=self._stopped_within)

    def after_epoch(self, epoch: int) -> None:
        """After the callbacks' `on_epoch_end`."""
        if self._replay is not None:
            self._replay.check_end_of_epoch()
            return
        if self._stopped_within:
            return
        self._epochs_done = epoch + 1
        if self._schedule.due_after_epoch(self._epochs_done - self._initial_epoch) or self._due_at_end:
            self._save(Position(self._epochs_done, 0, self._steps_done))
        self._due_at_end = False

    def end_training(self) -> None:
        """After the callbacks' `on_train_end`."""
        if not self._stopped_within:
            stopped = bool(self._model.stop_training)
            self._save(Position(self._epochs_done, 0, self._steps_done), must=True, stopped=stopped)
        self._wait()

    def _arrive(self) -> None:
        """All batches before the position were taken: now everything is given the state that it had there."""
        if self._replay is None:
            return
        self._replay.check_last()
        target = self._replay.target
        self._end_replay()
        self._put_back()
        forgetful = adapter.forgetful_layers(self._model)
        if forgetful:
            runtime.logger.warning(
                "the random numbers of %s begin anew, as their state cannot be stored: call "
                "tf.keras.backend.experimental.enable_tf_random_generator() before the model is made",
                ", ".join(forgetful),
            )
        if target.step == 0:
            self._model.reset_metrics()  # as Keras has just done; those of the epoch before were stored
        if not self._data_is_python:  # else it has drawn its numbers again while the data was gone through, and perhaps ahead
            randomness.put_back(self._stored["random"], python=self._alike or runtime.is_master_rank())
        self._step, self._steps_done, self._epochs_done = target.step, target.steps_done, target.epoch
        self._schedule.begin_with(target.steps_done)

    def _end_replay(self) -> None:
        if self._patch is not None:
            self._patch.take_off()
            self._patch = None
            self._model.train_function = self._train_function
        self._replay = None

    def _put_back(self) -> None:
        """Gives model, history and callbacks what was stored."""
        failure: Exception | None = None
        if self._variables is not None:
            difference = state.difference(self._model, self._variables)
            if difference is not None:
                failure = InvalidArgumentError(f"{difference}: build the same model, or begin anew with another folder")
        collectives.agree_on_failure(failure)
        state.put_back(self._model, self._variables, self._stored["common_seed"], state.is_per_rank(self._hooks))
        self._variables = None
        self._history.history = self._stored["history"]["logs"]
        self._history.epoch = self._stored["history"]["epochs"]
        try:
            callback_states.put_back(self._callbacks, self._stored["callbacks"])
        except Exception as error:  # of a callback of the user's
            failure = error
        collectives.agree_on_failure(failure)

    # ---------------------------------------------------------------------------------------------------------- writing

    def _save(self, position: Position, must: bool = False, stopped: bool = False) -> None:
        """Has a checkpoint written. must: also if that means to wait for the one before."""
        if must:
            self._wait()
        status = self._status()
        if status == _FAILED:
            self._raise_error()
        if status == _BUSY:
            runtime.logger.info("no checkpoint at %s: the one before is still being written", position)
            return
        failure = None
        variables = state.collect(self._model, state.is_per_rank(self._hooks))
        if self._writer is not None:
            try:
                self._writer.begin(position.steps_done, {**self._described(position, stopped), "variables": variables})
            except Exception as error:
                failure = error
        collectives.agree_on_failure(failure)

    def _described(self, position: Position, stopped: bool) -> dict[str, Any]:
        logs = {key: list(numbers) for key, numbers in self._history.history.items()}
        return {
            "written by": {"tensorflow": tf.__version__, "keras": adapter.version(), "ranks": runtime.get_size()},
            "position": {"epoch": position.epoch, "step": position.step, "steps_done": position.steps_done},
            "stopped": stopped,
            "fit": {
                "initial_epoch": self._initial_epoch,
                "steps": self._steps,
                "seed": global_seed(),
                "alike": self._alike,
                "random": self._begin,
            },
            "batches": [0, 0] if self._noted is None else [self._noted.first(), self._noted.last()],
            "random": randomness.states(),
            "history": {"epochs": list(self._history.epoch), "logs": logs},
            "callbacks": callback_states.collect(self._callbacks),
            "common_seed": bool(adapter.common_seed_variables()),
        }

    def _status(self) -> int:
        """The master's writer's."""
        mine = _FREE
        if self._writer is not None and not self._writer.wait(0):
            mine = _BUSY
        elif self._writer is not None and self._writer.has_failed:
            mine = _FAILED
        return int(collectives.broadcast(np.array([mine], np.int64))[0])

    def _wait(self) -> None:
        """Until nothing is being written any more; ranks hear of each other meanwhile, so that no deadline passes."""
        while self._status() == _BUSY:
            if self._writer is not None:
                self._writer.wait(0.5)
        if self._status() == _FAILED:
            self._raise_error()

    def _raise_error(self) -> None:
        collectives.agree_on_failure(self._writer.take_error() if self._writer is not None else None)


def begin(
    settings: Checkpoint | None, callbacks: Sequence[Any], model: Any, hooks: Any, initial_epoch: int, epochs: int
) -> NullSession:
    """The session of a `fit` with these settings, or without. Collective; arguments as those of `CheckpointSession`."""
    return NullSession() if settings is None else CheckpointSession(settings, callbacks, model, hooks, initial_epoch, epochs)


class _Before(adapter.Callback):
    """Goes first in the list of callbacks."""

    def __init__(self, session: CheckpointSession) -> None:
        super().__init__()
        self._session = session

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._session.before_epoch(epoch)


class _After(adapter.Callback):
    """Goes last: what it stores has seen all others."""

    def __init__(self, session: CheckpointSession) -> None:
        super().__init__()
        self._session = session

    def on_train_begin(self, logs: Any = None) -> None:
        self._session.begin_training()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._session.after_epoch_begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._session.after_step(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._session.after_epoch(epoch)

    def on_train_end(self, logs: Any = None) -> None:
        self._session.end_training()


def _is_finite(logs: Any) -> bool:
    """Whether there is no loss that is not a number."""
    loss = (logs or {}).get("loss")
    return loss is None or bool(np.isfinite(float(loss)))
