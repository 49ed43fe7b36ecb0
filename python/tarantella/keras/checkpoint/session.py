"""One call of `fit` with a `Checkpoint`: it continues from the newest good checkpoint and has new ones written."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import generations, runtime
from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.checkpoint import callback_states, lock, randomness, state
from tarantella.keras.checkpoint.callback import Checkpoint
from tarantella.keras.checkpoint.null_session import NullSession
from tarantella.keras.checkpoint.position import FingerprintedDataset, Position
from tarantella.keras.checkpoint.replay import Replay, data_changed, depends_on_iterators_only, runs_python
from tarantella.keras.checkpoint.restart import Beginning, locked_folder, open_folder
from tarantella.keras.checkpoint.schedule import Schedule
from tarantella.keras.checkpoint.termination import EXIT_CODE, TerminationNotice, Validation
from tarantella.keras.checkpoint.writer import SharedWriter
from tarantella.keras.reduction.reducer import check_all
from tarantella.seeding import global_seed

_COUNTERS = ("_epoch", "_step", "_steps_done", "_epochs_done", "_due_at_end", "_stopped_within")
_fits: dict[str, int] = {}  # for each folder, how many calls of `fit` in this process have used it to their end


class CheckpointSession(NullSession):
    """A `fit` with a `Checkpoint`, on every rank.

    Args:
        settings: the user's `Checkpoint`.
        callbacks: all others that were given to `fit`.
        model: the Keras model.
        hooks: the model's hooks; None on one rank.
        initial_epoch, epochs: as `fit` got them.
    """

    def __init__(
        self, settings: Checkpoint, callbacks: Sequence[Any], model: Any, hooks: Any, initial_epoch: int, epochs: int
    ) -> None:
        self._model, self._hooks = model, hooks
        self._state = state.ModelState(model, hooks) if hooks is None or hooks.held_state is None else hooks.held_state
        self._callbacks = list(callbacks)
        self._initial_epoch = initial_epoch
        self._termination = TerminationNotice() if settings.on_sigterm else None
        ends = None if self._termination is None else (lambda notice=self._termination: notice.received)
        self._validation = None if ends is None else Validation(model, ends)
        self._schedule = Schedule(settings.every_steps, settings.every_seconds, settings.every_epochs, ends)
        self._data: FingerprintedDataset | None = None
        self._steps: int | None = None  # in an epoch, if that is known
        self._data_is_python = False
        self._replay: Replay | None = None
        self._history = next((c for c in self._callbacks if isinstance(c, keras.callbacks.History)), keras.callbacks.History())
        self._epoch, self._step, self._steps_done = initial_epoch, 0, 0
        self._epochs_done = initial_epoch
        self._due_at_end = False  # of the epoch
        self._stopped_within = False  # an epoch: the training continues there when it is restarted
        self._folder = os.path.abspath(settings.folder)
        folder, self._stored = open_folder(self._folder, _fits.get(self._folder, 0) + 1, settings.keep)
        self._in_parts, self._keep = settings.sharded, settings.keep
        self._writer = SharedWriter(self._folder, folder, settings.sharded, runtime.logger.warning)
        if self._stored is None:
            self._beginning = Beginning(global_seed(), randomness.alike_everywhere(), randomness.states())
            self._is_over = False
            return
        self._stored.check_initial_epoch(initial_epoch, self._folder)
        self._beginning = self._stored.beginning
        self._beginning.restore_generators(self._beginning.random)
        self._is_over = self._stored.is_over(epochs)
        if not self._is_over:
            self._stored.prepare_callbacks(self._callbacks)

    @property
    def seed(self) -> int | None:
        return self._beginning.seed

    def fingerprinted(self, dataset: tf.data.Dataset, steps: int | None, has_shares: bool = True) -> tf.data.Dataset:
        cardinality = int(dataset.cardinality())
        self._steps = steps or (cardinality if cardinality >= 0 else None)
        self._data_is_python = runs_python(dataset)
        self._data = FingerprintedDataset(dataset, has_shares)
        if self._stored is not None and not self._is_over:
            before = self._stored.steps
            if None not in (before, self._steps) and before != self._steps:
                raise data_changed(f"an epoch has {self._steps} batches now, and had {before}: restore it")
            skips = steps is None and cardinality >= 0 and depends_on_iterators_only(dataset)
            target, fingerprints = self._stored.position, self._stored.fingerprints
            way = target, self._initial_epoch, skips
            self._replay = Replay(self._model, self._hooks, *way, data=self._data, fingerprints=fingerprints)
            how = "one batch is made of each epoch before" if skips else "all batches before are made again"
            runtime.logger.info("the training goes on with %s, at first without training: %s", target, how)
        return self._data.dataset

    def validate_on(self, data: Any, steps: int | None) -> None:
        if self._replay is not None:
            self._replay.validate_on(data, steps)

    def finished_history(self) -> Any:
        if self._stored is None or not self._is_over:
            return None
        runtime.logger.info("the training is over already: the model gets its last state, and nothing is trained")
        self._restore()
        self._stored.restore_generators()
        self._history.set_model(self._model)
        self._model.history = self._history
        self._count()
        lock.release(Path(self._folder))
        return self._history

    def callbacks_for_keras(self, callbacks: Sequence[Any], verbose: Any, epochs: Any) -> list[Any]:
        given = [*callbacks]
        if not any(isinstance(callback, keras.callbacks.History) for callback in given):
            given.append(self._history)
        if verbose != 0 and not any(isinstance(callback, keras.callbacks.ProgbarLogger) for callback in given):
            given.append(adapter.progress_bar())
        if self._replay is not None:
            given = [self._replay.silenced(callback) for callback in given]
        first = _callback(on_epoch_begin=self._before_epoch)
        last = _callback(  # a checkpoint contains the effects of all others
            on_train_begin=self._begin_training,
            on_epoch_begin=self._after_epoch_begin,
            on_train_batch_end=self._after_step,
            on_epoch_end=self._after_epoch,
            on_test_begin=self._begin_validation,
            on_test_batch_end=self._after_test_batch,
            on_train_end=self._end_training,
            **({} if self._validation is None else {"on_test_end": self._validation.end}),
        )
        return [first, *given, epochs, last]

    def take_over(self) -> None:
        folder = locked_folder(self._folder, _fits.get(self._folder, 0) + 1, self._keep)
        self._writer = SharedWriter(self._folder, folder, self._in_parts, runtime.logger.warning)

    def progress(self) -> dict[str, Any]:
        counters = {name: vars(self)[name] for name in _COUNTERS}
        return {"counters": counters, "schedule": self._schedule.progress(), "beginning": asdict(self._beginning)}

    def join(self, progress: dict[str, Any]) -> None:
        vars(self).update(progress["counters"])
        self._schedule.join(progress["schedule"])
        self._beginning = Beginning(**progress["beginning"])
        if self._termination is not None:
            self._termination.begin()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
            self._count()
        finally:
            self._end_replay()
            self._writer.wait_here()
            lock.release(Path(self._folder))
            if self._termination is not None:
                self._termination.end()
        if self._termination is not None:
            self._termination.take_effect()

    def _count(self) -> None:
        """The next call of `fit` with this folder is another one."""
        _fits[self._folder] = _fits.get(self._folder, 0) + 1

    # ------------------------------------------------- hooks of the first and the last callback, around the user's

    def _begin_training(self, logs: Any = None) -> None:
        if self._replay is not None:
            self._replay.begin()
        elif self._termination is not None and not generations.is_newcomer():
            self._termination.begin()

    def _before_epoch(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._step = epoch, 0
        if self._replay is not None:
            self._replay.begin_epoch(epoch)
            if self._replay.has_arrived():
                self._arrive(self._replay)

    def _after_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The callbacks have heard of the epoch, and hear of its steps again when the position is reached."""
        if self._replay is not None:
            self._replay.muted = True

    def _after_step(self, step: int, logs: Any = None) -> None:
        if self._replay is not None:
            if self._replay.has_arrived():
                self._arrive(self._replay)
            return
        self._steps_done += step + 1 - self._step
        self._step = step + 1
        due = self._schedule.due_after_step(self._steps_done)
        if self._steps is not None and self._step >= self._steps:
            self._due_at_end = due
            return
        self._stopped_within = bool(self._model.stop_training)
        position, is_over = Position(self._epoch, self._step, self._steps_done), self._schedule.is_over
        if due or ((self._stopped_within or is_over) and _is_finite(logs)):
            self._save(position, must=self._stopped_within or is_over)
        if is_over:
            self._exit(position)

    def _begin_validation(self, logs: Any = None) -> None:
        if self._validation is not None and self._replay is None and self.validates_in_step:
            self._validation.begin()

    def _after_test_batch(self, batch: int, logs: Any = None) -> None:
        validation = self._validation
        if validation is None or validation.before is None or not validation.is_over():
            return
        validation.before.restore()
        position = Position(self._epoch, self._step, self._steps_done)
        self._save(position, must=True)
        self._exit(position)

    def _after_epoch(self, epoch: int, logs: Any = None) -> None:
        if self._replay is not None:
            self._replay.check_end_of_epoch()
            return
        if self._stopped_within:
            return
        self._epochs_done = epoch + 1
        position, due = Position(self._epochs_done, 0, self._steps_done), self._due_at_end
        if self._schedule.due_after_epoch(self._epochs_done - self._initial_epoch) or due or self._schedule.is_over:
            self._save(position, must=self._schedule.is_over)
        self._due_at_end = False
        if self._schedule.is_over:
            self._exit(position)

    def _end_training(self, logs: Any = None) -> None:
        if not self._stopped_within:
            stopped = bool(self._model.stop_training)
            self._save(Position(self._epochs_done, 0, self._steps_done), must=True, stopped=stopped)
        self._writer.wait()

    def _exit(self, position: Position) -> None:
        """Ends this process, as SIGTERM asks for, when the checkpoint is written. Collective."""
        self._writer.wait()
        runtime.logger.warning(
            "SIGTERM: the training ends at %s, with exit code %d; it goes on from the checkpoint in %s when the script is "
            "started again",
            position,
            EXIT_CODE,
            self._folder,
        )
        raise SystemExit(EXIT_CODE)

    # ------------------------------------------------------------------------------------- the stored state comes back

    def _arrive(self, replay: Replay) -> None:
        """All batches before the position were taken: everything gets the state that it had there."""
        replay.check_last()
        target = replay.target
        self._end_replay()
        self._restore()
        forgetful = adapter.layers_without_seed_state(self._model)
        if forgetful:
            runtime.logger.warning(
                "the random numbers of %s begin anew, as their state cannot be stored: call "
                "tf.keras.backend.experimental.enable_tf_random_generator() before the model is made",
                ", ".join(forgetful),
            )
        if target.step > 0:  # at the end of an epoch Keras puts the logs of the last step into the history
            replay.logs.update({name: np.asarray(value) for name, value in self._model.get_metrics_result().items()})
        else:
            self._model.reset_metrics()  # as Keras has just done; the stored ones are those of the epoch before
        # A generator in Python has drawn its numbers again during the replay, and may be ahead by some batches.
        if self._stored is not None and not self._data_is_python:
            self._stored.restore_generators()
        self._step, self._steps_done, self._epochs_done = target.step, target.steps_done, target.epoch
        self._schedule.begin_with(target.steps_done)
        if self._termination is not None:
            self._termination.begin()

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.end()
            self._replay = None

    def _restore(self) -> None:
        if self._stored is not None:
            self._stored.restore(self._state, self._history, self._callbacks)

    # ---------------------------------------------------------------------------------------------------------- writing

    def _save(self, position: Position, must: bool = False, stopped: bool = False) -> None:
        """Begins to write a checkpoint. must: waits for the one before if necessary; otherwise this one is left out then."""
        if must:
            self._writer.wait()
        if not self._writer.is_free():
            runtime.logger.info("no checkpoint at %s: the one before is still being written", position)
            return
        check_all()
        if self._in_parts:
            groups, values = self._state.collect_part()
            tree = {"variables": groups}
            self._writer.begin_in_parts(position.steps_done, lambda: {**self._described(position, stopped), **tree}, values)
            return
        variables = self._state.collect()
        self._writer.begin(position.steps_done, lambda: {**self._described(position, stopped), "variables": variables})

    def _described(self, position: Position, stopped: bool) -> dict[str, Any]:
        """All that a checkpoint holds but the variables."""
        before = None if self._validation is None else self._validation.before
        logs = {key: list(numbers) for key, numbers in self._history.history.items()}
        return {
            "written by": {"tensorflow": tf.__version__, "keras": adapter.version(), "ranks": runtime.get_size()},
            "position": {"epoch": position.epoch, "step": position.step, "steps_done": position.steps_done},
            "stopped": stopped,
            "fit": {
                "initial_epoch": self._initial_epoch,
                "steps": self._steps,
                "seed": global_seed(),
                "alike": self._beginning.alike,
                "random": self._beginning.random,
            },
            "batches": [0, 0] if self._data is None else [self._data.first(), self._data.last()],
            "random": randomness.states() if before is None else before.random,
            "history": {"epochs": list(self._history.epoch), "logs": logs},
            "callbacks": callback_states.collect(self._callbacks),
            "common_seed": bool(adapter.common_seed_variables()),
        }


def open_session(
    settings: Checkpoint | None, callbacks: Sequence[Any], model: Any, hooks: Any, initial_epoch: int, epochs: int
) -> NullSession:
    """The session of a `fit`, with a `Checkpoint` or without. Collective. The arguments are those of `CheckpointSession`."""
    return NullSession() if settings is None else CheckpointSession(settings, callbacks, model, hooks, initial_epoch, epochs)


def _callback(**hooks: Callable[..., None]) -> Any:
    """A callback whose class has these hooks, so that it can be silenced (`Passage.silenced`)."""

    def method(hook: Callable[..., None]) -> Callable[..., None]:
        return lambda self, *args, **kwargs: hook(*args, **kwargs)

    return type("OfSession", (adapter.Callback,), {name: method(hook) for name, hook in hooks.items()})()


def _is_finite(logs: Any) -> bool:
    """Whether the loss, if there is one, is finite."""
    loss = (logs or {}).get("loss")
    return loss is None or bool(np.isfinite(float(loss)))
