"""One `fit` of an elastic job: its steps, and the collectives between them, are operations that survive the loss of ranks.

Each rank iterates over whole batches and takes its samples in the step, so that a batch can be divided anew. After a loss the
ranks that are left trace the steps again, for their new number, and make the step with the batch at hand. A newcomer takes what
it needs for that step from the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, generations, runtime
from tarantella.errors import AbortedError, UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint.null_session import NullSession
from tarantella.keras.elastic import fresh_callbacks
from tarantella.keras.elastic.handover import Handover, Part
from tarantella.keras.elastic.kept_state import KeptState
from tarantella.keras.elastic.last_batch import LastBatch
from tarantella.keras.elastic.masters_callbacks import MastersCallbacks
from tarantella.keras.elastic.newcomer import Newcomer
from tarantella.keras.elastic.operations import NONE, NoState, operations
from tarantella.keras.reduction import device
from tarantella.keras.step import accumulation
from tarantella.keras.step.checks import StepChecks
from tarantella.keras.step.hooks import StepHooks
from tarantella.keras.step.traced_functions import StandIn

_FUNCTIONS = ("train_function", "test_function")  # as Keras names them
_BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_test_batch_begin", "on_test_batch_end")
_CHANGE_NOTHING = adapter.callback_kinds(
    "BackupAndRestore", "CSVLogger", "History", "ModelCheckpoint", "ProgbarLogger", "TensorBoard", "TerminateOnNaN"
)


class Preparation(NoState):
    """What `fit` does before its first batch is a stage of operations: the master's part begins later."""

    def __init__(self) -> None:
        self.is_master = runtime.is_master_rank()
        """Whether this rank was the master when it began."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """`fit` is in this context, if the job is elastic."""
        if not generations.is_elastic():
            yield
            return
        if operations.has_stage:  # in a callback: a rank that goes on has seen all of them finish the step before
            collectives.barrier()
        with operations.stage(self), collectives.guarded(operations.run):
            yield


def create(
    preparation: Preparation,
    model: Any,
    hooks: StepHooks,
    callbacks: Sequence[Any],
    session: NullSession,
    arguments: Mapping[str, int | None],
    distributes: bool,
) -> "ElasticFit | None":
    """What lets a `fit` survive the loss of ranks; None if it need not. Collective.

    Args:
        preparation, model, hooks, callbacks, session, arguments: as for `ElasticFit`.
        distributes: whether ranks take parts of the same batches.

    Raises:
        UnsupportedError: this training could not go on after the loss of a rank.
    """
    if not generations.is_elastic():
        return None
    reasons = {
        "each rank has data of its own, which is lost with it (tnt_distribute_dataset=False)": not distributes,
        "run_eagerly=True updates weights before a step is complete": model.run_eagerly,
        "steps_per_execution > 1 makes several steps at once": adapter.steps_per_execution(model) > 1,
        "the optimizer accumulates gradients, and each rank has a part of the sums": bool(accumulation.accumulators(model)),
        "shard_optimizer=True gives each rank a part of the optimizer's state": hooks.served is not None,
        "each rank has layers of its own (a pipeline)": not hooks.holds_all_weights,
        "autotuning compares steps of one number of ranks (TNT_FUSION_THRESHOLD)": hooks.autotune is not None,
        "gradients are reduced on GPUs": device.has_usable_gpu(),
    }
    reason = next((text for text, is_so in reasons.items() if is_so), None)
    if reason is not None:
        raise UnsupportedError(f"--elastic: {reason}. Train without that, or with --max-restarts and tnt.callbacks.Checkpoint")
    return ElasticFit(preparation, model, hooks, callbacks, session, arguments)


class ElasticFit(adapter.Callback):
    """Goes first in the list of callbacks.

    Args:
        preparation: the stage of `fit` that ends here.
        model: the Keras model.
        hooks: the model's.
        callbacks: the user's, without checkpoints.
        session: writes these.
        arguments: those of `fit` that are the same numbers on all ranks, by name; ``initial_epoch`` is one of them.
    """

    def __init__(
        self,
        preparation: Preparation,
        model: Any,
        hooks: StepHooks,
        callbacks: Sequence[Any],
        session: NullSession,
        arguments: Mapping[str, int | None],
    ) -> None:
        super().__init__()
        self._callbacks, self._session = list(callbacks), session
        self._placed: Sequence[Any] = ()
        self._silenced: Sequence[Any] = ()
        self._position = generations.Position(arguments["initial_epoch"] or 0, 0, generations.begin_training())
        self._door = generations.Door()
        self._newcomer: Newcomer | None = None
        self._trained, self._hooks = model, hooks
        self._kept = KeptState(model, hooks.reproducible)
        self._of_master = MastersCallbacks(callbacks)
        self._is_master = preparation.is_master  # what was made since then may have been made for another place
        self._batches: dict[str, LastBatch] = {}
        self._parts: dict[str, Part] = {"session": session, "callbacks": self._of_master}
        self._handover = Handover(model, hooks.loss_kinds, self._callbacks, self._batches, arguments, self._parts)
        self._may_change_by_batch = any(
            type(one) not in _CHANGE_NOTHING and not placement.overridden(one).isdisjoint(_BATCH_HOOKS) for one in callbacks
        )
        self._makes_step = False  # whether the operation is a step
        self._is_noted = True  # whether the state with which the last step ended was noted, or may not be any more
        self._functions: dict[str, Callable[[Any], Any]] = {}  # Keras' own, behind `_step`, traced under the eyes of `_kept`
        self._traced: set[str] = set()  # of them, those that were called in this fit and generation

    def train_on(self, dataset: tf.data.Dataset, steps: int | None) -> None:
        """Says over what Keras iterates. steps: of an epoch, if it has not all of them."""
        if generations.is_newcomer():
            at = self._position
            self._newcomer = Newcomer(self._trained, self._hooks, at.training, dataset, steps, at.epoch)
        self._batches["train_function"] = LastBatch(dataset)
        if steps is None and self._batches["train_function"].cardinality == tf.data.UNKNOWN_CARDINALITY:
            runtime.logger.warning(
                "--elastic: the length of the training data is unknown. Where such data ends, Keras makes a part of a step "
                "without a batch: it counts an iteration and decays weights. Here it does not, so numbers differ a little from "
                "those without --elastic. tf.data.experimental.assert_cardinality(batches) makes the length known"
            )

    def validate_on(self, dataset: tf.data.Dataset, steps: int | None) -> None:
        """Says over what Keras iterates in validations. steps: of each, if it has not all of them."""
        self._batches["test_function"] = LastBatch(dataset)
        if self._newcomer is not None:
            self._newcomer.validate_on(dataset, steps, self._batches["test_function"])

    def callbacks_for_keras(self, placed: Sequence[Any], epochs: Any, checks: StepChecks) -> list[Any]:
        """The list of callbacks for Keras' `fit`.

        Args:
            placed: as `placement.for_fit` and the session give them.
            epochs: the one of them that announces epochs to the source of batches.
            checks: the one of them that checks steps.
        """
        self._placed, self._parts["checks"] = placed, checks
        others = placed
        if (newcomer := self._newcomer) is not None:
            others = [newcomer.silenced(one) if one is not epochs else one for one in placed]
        self._silenced = [one for one in others if one is not epochs]
        return [self, *others]

    def tried(self, trial: Callable[[], None]) -> None:
        """Makes a trial of the model, which leaves its state as it was. Collective."""

        def try_out() -> None:
            trial()
            collectives.barrier()  # a rank that is ahead of others has seen all of them finish it

        operations.run(try_out)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keras' `fit` runs in this context, with the hooks."""
        self._of_master.begin(self._placed)
        functions = vars(self._trained)  # past what notes functions that Keras is asked to make anew
        self._hooks.metrics.observe_sums, self._hooks.observe_trace = self._kept.keep_sums, self._kept.note_trace
        functions.update({name: StandIn(self._step, name) for name in _FUNCTIONS})
        try:
            with operations.stage(self):
                self.settle()
                yield
                collectives.barrier()  # a rank that goes on has seen all of them finish what was before
        finally:
            self._door.close()
            self._hooks.metrics.observe_sums = self._hooks.observe_trace = None
            functions.update({name: self._functions.get(name) for name in _FUNCTIONS})

    def on_train_begin(self, logs: Any = None) -> None:
        if self._newcomer is not None:
            self._newcomer.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._position = self._position._replace(step=batch)
        if self._newcomer is not None and self._newcomer.begin_step():
            for callback in self._silenced:
                callback.on_epoch_begin(self._position.epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._newcomer is not None:
            self._newcomer.end_step()
        elif batch + 1 == self.params.get("steps"):  # Keras resets metrics before callbacks hear of a validation
            self._note_end_of_step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note_end_of_step()
        if self._newcomer is not None:
            self._newcomer.end_epoch()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._position = self._position._replace(epoch=epoch, step=0)
        if self._newcomer is not None:
            self._newcomer.begin_epoch(epoch)
        self._kept.has_sums = False
        self._of_master.note()

    def on_test_begin(self, logs: Any = None) -> None:
        self._note_end_of_step()
        self._kept.has_sums = False

    def on_test_end(self, logs: Any = None) -> None:
        self._note_end_of_step()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0 and "test_function" in self._batches and self._newcomer is None:
            self._batches["test_function"].note()

    def _step(self, name: str, iterator: Any) -> Any:
        if self._hooks.functions.are_on_other_data:  # of which no batch is at hand, to be taken again
            logs = self._made(name)(iterator)
            self._kept.has_sums = True
            return logs
        batch = self._batches[name]
        batch.take(iterator)
        meeting = None
        if self._newcomer is not None:
            if not operations.join():
                self._newcomer.begin()
                return {}
            self._newcomer = None
        elif name == "train_function" and runtime.is_master_rank() and self._door.is_knocked_at(self._position):
            meeting = self._position
        self._kept.copy(name in self._traced)
        self._kept.ended.let_go()
        self._makes_step = True

        def make() -> Any:
            logs = _numbers(self._made(name)(batch.iterator))
            self._traced.add(name)  # not on a rank that takes the outcome of another one
            return logs

        def step() -> Any:
            if meeting is not None:
                raise _left("ranks join")
            return make()

        logs = operations.run(step, make, self._kept.put_back, meeting, changes=True)
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

    def _note_end_of_step(self) -> None:
        """The callbacks that hear of it next may change the model, and have not yet."""
        if not self._is_noted:
            self._is_noted = True
            self._kept.ended.note()

    # ------------------------------------------------------------------------------------------------ as State of operations

    def finish(self, changes: bool) -> None:
        may_wait = self._makes_step and not self._may_change_by_batch
        if not changes:  # a rank that is behind by it lacks its outcome alone
            self._kept.ended.pass_over()
        elif may_wait:
            self._kept.pass_over()
        else:
            self._kept.note()
        self._is_noted, self._makes_step = not may_wait, False

    def renew(self) -> None:
        self._functions.clear()
        self._traced.clear()

    def share(self, source: int | None, done: Sequence[int], changes: bool) -> None:
        if source is not None and NONE in done:
            self._hand_over(source)
        own = done[runtime.get_rank()]
        behind = [NONE < one < max(done) for one in done]  # newcomers go on with the operation that the source has begun
        takes = changes and behind[runtime.get_rank()]
        self._kept.share(source, takes or own == NONE)
        if changes or not any(behind):  # callbacks may have changed the others' weights since
            self._kept.compare()
        if source is not None and changes:
            self._kept.ended.give(source, takes)
        if source is not None and NONE in done:
            fresh_callbacks.warn(self._callbacks, self._trained, [one == NONE for one in done])
        if own == NONE:
            self._kept.ended.note()

    def settle(self) -> None:
        if runtime.is_master_rank() and not self._is_master:
            self._is_master = True
            self._session.take_over()
            self._of_master.take_over()

    def _hand_over(self, source: int) -> None:
        """Gives newcomers what `fit` knows beside the model. Collective."""
        is_source = runtime.get_rank() == source
        record = collectives.broadcast_object(self._handover.record() if is_source else None, source)
        if generations.is_newcomer():
            self._handover.take(record)
            generations.has_joined()


def _left(why: str) -> AbortedError:
    """The error with which this rank leaves the job, and all others with it."""
    runtime.world().abort(why)
    error: AbortedError = AbortedError(why)
    return error


def _numbers(logs: Any) -> Any:
    return tf.nest.map_structure(np.asarray, logs)
