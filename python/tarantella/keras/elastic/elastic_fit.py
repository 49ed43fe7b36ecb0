"""One `fit` of an elastic job: its steps, and the collectives between them, are operations that survive the loss of ranks.

Each rank iterates over whole batches and takes its samples in the step, so that a batch can be divided anew. After a loss the
ranks that are left trace the steps again, for their new number, and make the step with the batch at hand.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, generations, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback_states
from tarantella.keras.checkpoint.session import NullSession
from tarantella.keras.elastic.kept_state import KeptState
from tarantella.keras.elastic.last_batch import LastBatch
from tarantella.keras.elastic.operations import Operations
from tarantella.keras.reduction import device, device_placement
from tarantella.keras.step import accumulation
from tarantella.keras.step.hooks import StepHooks


def create(
    model: Any, hooks: StepHooks, callbacks: Sequence[Any], session: NullSession, distributes: bool
) -> "ElasticFit | None":
    """What lets a `fit` survive the loss of ranks; None if it need not. Collective.

    Args:
        model, hooks, callbacks, session: as for `ElasticFit`.
        distributes: whether ranks take parts of the same batches.

    Raises:
        UnsupportedError: this training could not go on after the loss of a rank.
    """
    if not generations.is_elastic() or runtime.get_size() == 1:
        return None
    reasons = {
        "each rank has data of its own, which is lost with it (tnt_distribute_dataset=False)": not distributes,
        "run_eagerly=True updates weights before a step is complete": model.run_eagerly,
        "steps_per_execution > 1 makes several steps at once": adapter.steps_per_execution(model) > 1,
        "the optimizer accumulates gradients, and each rank has a part of the sums": bool(accumulation.accumulators(model)),
        "shard_optimizer=True gives each rank a part of the optimizer's state": hooks.served is not None,
        "each rank has layers of its own (a pipeline)": not hooks.holds_all_weights,
        "autotuning compares steps of one number of ranks (TNT_FUSION_THRESHOLD)": hooks.autotune is not None,
        "gradients are reduced on GPUs": device.device_of_gradients() != device_placement.HOST,
    }
    reason = next((text for text, is_so in reasons.items() if is_so), None)
    if reason is not None:
        raise UnsupportedError(f"--elastic: {reason}. Train without that, or with --max-restarts and tnt.callbacks.Checkpoint")
    return ElasticFit(model, hooks, callbacks, session)


class ElasticFit(adapter.Callback):
    """Goes first in the list of callbacks.

    Args:
        model: the Keras model.
        hooks: the model's.
        callbacks: the user's, without checkpoints.
        session: writes these.

    Attributes:
        placed_callbacks: the same, as `placement.for_fit` gives them.
    """

    def __init__(self, model: Any, hooks: StepHooks, callbacks: Sequence[Any], session: NullSession) -> None:
        super().__init__()
        self._callbacks, self._session = list(callbacks), session
        self.placed_callbacks: Sequence[Any] = ()
        self._trained, self._hooks = model, hooks
        self._kept = KeptState(model, hooks.reproducible)
        self._operations = Operations(self)
        self._states: dict[str, Any] = {}  # of the master's callbacks when the epoch began
        self._is_master = runtime.is_master_rank()
        self._batches: dict[str, LastBatch] = {}
        self._functions: dict[str, Callable[[Any], Any]] = {}  # Keras' own, behind `_step`
        self._traced: set[str] = set()  # of them, those that were called in this fit and generation

    def dataset(self, dataset: tf.data.Dataset, function: str) -> tf.data.Dataset:
        """The same dataset for Keras to iterate over. function: that gets its batches, ``"train_function"`` or the like."""
        self._batches[function] = LastBatch(dataset)
        return self._batches[function].dataset

    def tried(self, trial: Callable[[], None]) -> None:
        """Makes a trial of the model, which leaves its state as it was. Collective."""

        def try_out() -> None:
            trial()
            collectives.barrier()  # a rank that is ahead of others has seen all of them finish it

        self._operations.run(try_out)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keras' `fit` runs in this context, with the hooks."""
        self._warn_of_lone_callbacks()
        functions = vars(self._trained)  # past what notes functions that Keras is asked to make anew
        self._functions = {name: functions[name] for name in self._batches if functions.get(name) is not None}
        self._hooks.metrics.observe_sums = self._kept.keep_sums
        functions.update({name: functools.partial(self._step, name) for name in self._batches})
        try:
            with collectives.guarded(self._operations.run):
                yield
        finally:
            self._hooks.metrics.observe_sums = None
            functions.update({name: self._functions.get(name) for name in self._batches})

    def _warn_of_lone_callbacks(self) -> None:
        """Collective."""
        own = [type(callback).__name__ for callback in self._callbacks]
        of_master = collectives.broadcast_object(own)
        lone = [name for name in dict.fromkeys(of_master) if of_master.count(name) > own.count(name)]
        if collectives.all_reduce(int(bool(lone)), "max"):
            runtime.logger.warning(
                "--elastic: rank 0 has callbacks that another rank was not given, so they end with rank 0: give all ranks the "
                "same, as Tarantella runs those that write files on the master alone"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._kept.has_sums = False
        states = callback_states.collect(self._of_master()) if runtime.is_master_rank() else None
        self._states = collectives.broadcast_object(states)

    def _of_master(self) -> list[Any]:
        return [callback for callback in self._callbacks if not placement.runs_on_all_ranks(callback)]

    def on_test_begin(self, logs: Any = None) -> None:
        self._kept.has_sums = False

    def _step(self, name: str, iterator: Any) -> Any:
        self._kept.copy()

        def again() -> Any:
            return _numbers(self._made(name)(self._batches[name].again()))

        def step() -> Any:
            if name in self._traced:
                return _numbers(self._made(name)(iterator))
            next(iterator)  # a loss in the trace must find the batch taken, like any later one
            return again()

        logs = self._operations.run(step, again, undo=self._kept.put_back)
        self._traced.add(name)
        self._kept.has_sums = True
        return logs

    def _made(self, name: str) -> Callable[[Any], Any]:
        """Keras' function. It is made anew if it belongs to an earlier generation."""
        if name not in self._functions:
            functions = vars(self._trained)
            stand_in, functions[name] = functions[name], None
            getattr(self._trained, f"make_{name}")()
            self._functions[name], functions[name] = functions[name], stand_in
        return self._functions[name]

    # ------------------------------------------------------------------------------------------------ as State of operations

    def renew(self) -> None:
        self._functions.clear()
        self._traced.clear()
        self._hooks.reducers.close()

    def share(self, source: int | None) -> None:
        self._kept.share(source)
        self._kept.compare()
        if runtime.is_master_rank() and not self._is_master:
            self._is_master = True
            self._session.take_over()
            placement.take_over(self.placed_callbacks)
            callback_states.restore(self._of_master(), self._states)


def _numbers(logs: Any) -> Any:
    return tf.nest.map_structure(np.asarray, logs)
