"""The way back to a position in the data: Keras goes through its epochs and steps again without training.

The elements of a dataset depend on what was taken from it before: a shuffle draws a new seed for each iterator, and a generator
continues where it stopped. So a training that was restarted lets Keras run its epochs and steps from the first one on, with a
training function that takes the batches and drops them (`Passage.step`), and with such a test function, as validation data
depend on what was taken as well. Every iterator is made as it was, and everything that wants to know of epochs hears of them.
If a dataset depends only on how many iterators were made and begun (`depends_on_iterators_only`), one batch of each earlier
epoch is enough, and of each earlier validation.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import InvalidArgumentError
from tarantella.keras import adapter
from tarantella.keras.adapter import datasets
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint.position import FingerprintedDataset, Position
from tarantella.keras.step.patch import Patch

_MUTED_HOOKS = (
    *("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"),
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
)


class Passage:
    """Goes through the data without training. Callbacks hear nothing of epochs, steps and validations meanwhile.

    An `evaluate` of the class's own is left out: it may need what only a real one computes.

    Args:
        model: the model that is trained.
        hooks: the model's; None on one rank.
        target: the position to which it goes, which may be put further off.
        initial_epoch: the epoch with which `fit` begins.
        skips_epochs: whether one batch of each earlier epoch is enough.
    """

    def __init__(self, model: Any, hooks: Any, target: Position, initial_epoch: int, skips_epochs: bool) -> None:
        self.target = target
        self.muted = False
        """Whether callbacks hear nothing of epochs and steps."""
        self.logs: dict[str, Any] = {}
        """What Keras gets as the logs of a step."""
        self._model, self._hooks = model, hooks
        self._skips = skips_epochs
        self._epoch = initial_epoch
        self._step = 0  # of the epoch
        self._has_own_evaluate = adapter.has_own(model, "evaluate")
        self._skips_validations = False  # whether one batch of each is enough
        self._validates_alike = False  # whether each of them has the same batches, whatever was taken before
        self._begins_validation = False  # if one follows
        self._functions: dict[str, Any] = {}  # the model's, while others are in their place
        self._patch: Patch | None = None

    def validate_on(self, data: Any, steps: int | None) -> None:
        """Says what Keras' `fit` gets as validation data, and ``validation_steps``. All is taken from other data."""
        if isinstance(data, tf.data.Dataset):
            is_known = steps is not None or int(data.cardinality()) >= 0
            self._skips_validations = is_known and depends_on_iterators_only(data)
            self._validates_alike = depends_on_iterators_only(data) and not _shuffles(data)
        else:
            self._skips_validations = self._validates_alike = isinstance(data, (tuple, list)) and len(data) > 1  # arrays

    def begin(self) -> None:
        """Takes the place of the model's functions for training and tests."""
        self.muted = True
        functions = vars(self._model)  # past what notes functions that Keras is asked to make anew
        self._functions = {name: functions.get(name) for name in ("train_function", "test_function")}
        functions.update(train_function=self.step, test_function=self._test_step)
        if self._has_own_evaluate:
            has_hooks = self._hooks is not None and self._hooks.validation is not None  # in the place of the model's
            place = (self._hooks, "validation") if has_hooks else (self._model, "evaluate")
            self._patch = Patch([(*place, self._leave_out_validation)])
            self._patch.apply()

    def end(self) -> None:
        """Gives them back, if `begin` was called."""
        self.muted = False
        if self._patch is not None:
            self._patch.revert()
            self._patch = None
        vars(self._model).update(self._functions)
        self._functions = {}

    def _leave_out_validation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not self._validates_alike:
            self.miss_validation()
        return {}

    def miss_validation(self) -> None:
        """A validation is left out, and later ones may have other batches for that."""
        runtime.logger.warning(
            "an evaluate of the model's own is not called on the way to %s: later validations may have other batches than "
            "without the restart, as the validation data depend on how often they were read",
            self.target,
        )

    def silenced(self, callback: Any) -> Any:
        """The same callback, which hears nothing of steps and epochs while they are muted."""

        def silent(hook: str) -> Any:
            original = getattr(type(callback), hook)

            def call(this: Any, *args: Any, **kwargs: Any) -> None:
                if not self.muted:
                    original(this, *args, **kwargs)

            return call

        hooks = placement.overridden(callback).intersection(_MUTED_HOOKS)
        return placement.sharing_state(callback, {hook: silent(hook) for hook in hooks})

    def begin_epoch(self, epoch: int) -> None:
        """Keras begins an epoch."""
        self._epoch, self._step, self._begins_validation = epoch, 0, True

    def step(self, iterator: Any) -> dict[str, Any]:
        """Takes the batches of one call of the training function.

        Raises:
            StopIteration: there are no batches left.
        """
        wanted = adapter.steps_per_execution(self._model)
        before = self._epoch < self.target.epoch
        if not before:
            wanted = min(wanted, self.target.step - self._step)
        # A shuffle makes the iterator of a shuffle before it when it is first asked for an element, not earlier.
        begins = self._step == 0
        taken = self._take(iterator, wanted) if begins or not (before and self._skips) else wanted
        if taken == 0:
            raise StopIteration
        self._step += taken
        return self.logs

    def _test_step(self, iterator: Any) -> dict[str, Any]:
        wanted = adapter.steps_per_execution(self._model)
        if (self._begins_validation or not self._skips_validations) and _taken(iterator, wanted) == 0:
            raise StopIteration
        self._begins_validation = False
        return {}

    def _take(self, iterator: Any, wanted: int) -> int:
        return _taken(iterator, wanted)

    def has_arrived(self) -> bool:
        """Whether the last step was the last one before the position."""
        return self._epoch == self.target.epoch and self._step >= self.target.step

    def missed(self) -> str | None:
        """How the data ends before the position, when Keras ends an epoch; None if it does not."""
        return f"ends after {self._step} batches of epoch {self._epoch + 1}" if self._epoch >= self.target.epoch else None


def _taken(iterator: Any, wanted: int) -> int:
    return next((taken for taken in range(wanted) if next(iterator, None) is None), wanted)


class Replay(Passage):
    """Goes to the position of a checkpoint. All ranks do so together.

    Args:
        model, hooks, target, initial_epoch, skips_epochs: as for `Passage`.
        data: the model's batches.
        fingerprints: of the first batch of all and of the last one before the position, when the checkpoint was written.
    """

    def __init__(
        self,
        model: Any,
        hooks: Any,
        target: Position,
        initial_epoch: int,
        skips_epochs: bool,
        *,
        data: FingerprintedDataset,
        fingerprints: Sequence[int],
    ) -> None:
        super().__init__(model, hooks, target, initial_epoch, skips_epochs)
        self._data = data
        self._first, self._last = fingerprints
        self._has_begun = False

    def begin_epoch(self, epoch: int) -> None:
        """Callbacks hear of the one in which the position is."""
        super().begin_epoch(epoch)
        if epoch == self.target.epoch:
            self.muted = False

    def _take(self, iterator: Any, wanted: int) -> int:
        """Collective at the first batch. Raises InvalidArgumentError if it is not the checkpoint's."""
        taken = super()._take(iterator, wanted if self._has_begun else min(wanted, 1))
        if taken == 0 or self._has_begun:
            return taken
        self._check(self._data.first(), self._first, "the first batch")
        self._has_begun = True
        return taken + super()._take(iterator, wanted - taken)

    # --------------------------------------------------------------------------------------------- at the position

    def check_last(self) -> None:
        """Checks that the batch before the position is the one from before. Collective.

        Raises:
            InvalidArgumentError: it is another one.
        """
        if self.target.step > 0 or not self._skips:
            self._check(self._data.last(), self._last, f"the last batch before {self.target}")

    def check_end_of_epoch(self) -> None:
        """Checks, when Keras ends an epoch, that the position is not in it.

        Raises:
            InvalidArgumentError: the data has fewer batches.
        """
        if missed := self.missed():
            raise data_changed(f"it {missed}: restore it")

    def _check(self, found: int, expected: int, name: str) -> None:
        failure = None
        if runtime.is_master_rank() and found != expected:
            failure = data_changed(
                f"{name} is another one: its samples, their order or the batch size are not as they were. Give a seed to "
                "whatever is random in the dataset, make it anew for each fit"
            )
        collectives.agree_on_failure(failure)


def data_changed(how: str) -> InvalidArgumentError:
    """The error for training data that has changed. how: in which way, and what to do."""
    error: InvalidArgumentError = InvalidArgumentError(
        f"the training data has changed since the checkpoint was written: {how}, or begin anew with another folder"
    )
    return error


# An iterator over one of these leaves no state behind, but that a shuffle draws a seed for each iterator when it begins.
_STATELESS = frozenset(
    {
        *("AssertCardinality", "Batch", "Enumerate", "Filter", "FixedLengthRecord", "FlatMap", "Interleave", "Map", "Options"),
        *("PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap", "Prefetch", "Range", "Scan", "Shard", "Shuffle"),
        *("Skip", "TFRecord", "Take", "Tensor", "TensorSlice", "TextLine", "Unbatch", "Window", "Zip"),
    }
)


def depends_on_iterators_only(dataset: tf.data.Dataset) -> bool:
    """Whether the elements depend on how many iterators were made and begun before, and not on what was taken from them."""
    for one in datasets.everything(dataset):
        operations = list(datasets.operations(one))
        if not _is_stateless(datasets.kind(one)) or any(name.startswith("Shuffle") for name in operations):
            return False
        if any(_keeps_state(name) for name in operations):
            return False
    return True


def _shuffles(dataset: tf.data.Dataset) -> bool:
    return any(datasets.kind(one).startswith("Shuffle") for one in datasets.everything(dataset))


def runs_python(dataset: tf.data.Dataset) -> bool:
    """Whether making the elements runs Python code, such as a generator."""
    return any("PyFunc" in name for one in datasets.everything(dataset) for name in datasets.operations(one))


def _is_stateless(kind: str) -> bool:
    name, dataset, version = kind.partition("Dataset")
    return bool(dataset) and name in _STATELESS and version in ("", "V1", "V2", "V3", "V4")


def _keeps_state(operation: str) -> bool:
    """Whether the operation may give another result when it runs again. Called functions have their own operations."""
    # TensorFlow calls ReadFile stateful only so that the file is read each time.
    if operation in ("Placeholder", "ReadFile") or "PartitionedCall" in operation or _is_stateless(operation):
        return False
    return datasets.is_stateful(operation)
