"""The part that this rank has in the step that is being traced or run eagerly, and how much it counts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.data.split import Share
from tarantella.keras.reduction import collectives, device_placement
from tarantella.keras.step.losses import LossKinds


class CurrentStep:
    """This rank's share of the batch, and its weight among all ranks.

    A rank whose share is empty runs the step all the same, on a sample that does not count: ranks take part in the same
    collectives. What such a step changes on the rank is restored.
    """

    number_of_run = 0  # as of `batch_sums.PartOfBatch`: no run of a trial

    def __init__(self) -> None:
        self.is_training = False
        self.is_single_batch = False  # whether Keras has this batch alone, as in `train_on_batch`
        self.loss_kinds = LossKinds()
        self.weight_of_gradients: Callable[[], tf.Tensor] = self.weight  # with which those of ranks are added up
        self.may_be_empty = True  # whether this rank's share of a batch can be empty
        self.given: Sequence[tf.data.Dataset] = ()  # the datasets of which the batches are, while they are known
        self._share: Share | None = None
        self._total_samples: tf.Tensor | None = None
        self._before: dict[int, tf.Tensor] = {}  # the values of variables when the step began, by id, while it may be empty

    @contextmanager
    def running(self, share: Share, training: bool) -> Iterator[None]:
        """In this context the model computes its share of a batch."""
        self._share, self.is_training, self._total_samples = share, training, None
        try:
            with context.model_step(), context.weighted(self.weight):
                yield
        finally:
            self._share, self.is_training = None, False

    @property
    def is_running(self) -> bool:
        """Whether a step is being traced or run."""
        return self._share is not None

    @property
    def share(self) -> Share:
        """This rank's share of the batch."""
        if self._share is None:
            raise UnsupportedError("an optimizer step outside of the model's training step is not supported yet")
        return self._share

    def weight(self) -> tf.Tensor:
        """This rank's part of the global batch. The mean over all samples is the sum over ranks of weight * mean.

        Computed by the CPU: a reducer reads it in host memory, and a copy from a GPU would wait for the GPU's work.
        """
        with device_placement.on_host():
            samples = tf.cast(self.share.samples, tf.float64)
            return samples if self.counts_alone() else samples / tf.cast(self._samples_of_all_ranks(), tf.float64)

    def counts_alone(self) -> bool:
        """Whether this rank evaluates data of its own. Ranks may have different numbers of batches, which count by samples."""
        return not self.is_training and self._share is not None and self._share.total is None

    def is_stated(self) -> bool:
        """Whether the user states the number of samples: a mean over rows of tensors counts by these rows."""
        return self._share is not None and self._share.is_stated

    def total(self) -> tf.Tensor | None:
        """The number of samples of the batch that is divided among ranks; None if each rank has a batch of its own."""
        return self.share.total

    def _samples_of_all_ranks(self) -> tf.Tensor:
        if self.share.total is not None:
            return self.share.total
        if self._total_samples is None:  # one sum in a step, however often it is asked for
            self._total_samples = collectives.total(self.share.samples)
        return self._total_samples

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over ranks of the number that each rank's loss divides by."""
        return collectives.total(divisor)

    # -------------------------------------------------------------------------------------- steps without a sample

    @contextmanager
    def unchanged_if_empty(self, variables: Sequence[Any]) -> Iterator[None]:
        """A step in this context does not change the variables if this rank's share of the batch is empty."""
        self._before = {id(v): adapter.unwrap(v).read_value() for v in variables} if self.may_be_empty else {}
        yield
        self._restore_if_empty(variables)

    def read_unchanged_if_empty(self, variables: Sequence[Any]) -> list[tf.Tensor]:
        """The values of variables, restored first if this rank's share of the batch is empty."""
        self._restore_if_empty(variables)
        return [adapter.unwrap(v).read_value() for v in variables]

    def _restore_if_empty(self, variables: Sequence[Any]) -> None:
        changed = [v for v in variables if id(v) in self._before]
        if self._share is None or not changed:
            return
        before = [self._before[id(v)] for v in changed]  # the step may change them again, and then they are restored again

        def restore() -> tf.Tensor:
            for variable, value in zip(changed, before, strict=True):
                adapter.unwrap(variable).assign(value)
            return tf.constant(True)

        tf.cond(self._share.samples > 0, lambda: tf.constant(True), restore)
