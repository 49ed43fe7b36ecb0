"""The part of one rank's loss in the loss of the global batch.

Gradients are summed over ranks, weighted by samples. That is right for a loss that is a mean over samples. A loss that is a
sum, or a mean over the elements that a mask or sample weights leave, is scaled first: then the same weighted sum is right. A
loss that couples the samples of a batch is right only if it is computed from all of them, on every rank.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.data import rows as rows_of_batch
from tarantella.keras.reduction import rows as rows_of_ranks
from tarantella.keras.step import batch_sums, noise


@dataclass
class LossKinds:
    """The results of trials (`keras/trial`), by the ids of losses. A loss without one is a mean over samples."""

    summed: set[int] = field(default_factory=set)
    """They return one number, which is a sum over samples."""
    by_sums: dict[int, batch_sums.BatchSums] = field(default_factory=dict)
    """They are made of sums over samples, as a sum over weights divided by that of the weights: ranks add up the sums."""
    gathered: set[int] = field(default_factory=set)
    """They couple samples, and shall be computed from those of all ranks."""
    summed_added: set[tuple[bool, int, int]] = field(default_factory=set)
    """Calls of `add_loss` that add a sum: whether in training, the id of the layer, the number of the call."""
    added_by_sums: dict[bool, batch_sums.BatchSums] = field(default_factory=dict)
    """The same of what the model's layers add by `add_loss`, in training and not."""
    own_by_sums: dict[str, batch_sums.BatchSums] = field(default_factory=dict)
    """The same of the model's own `compute_loss` in a step, ``"train_step"`` or ``"test_step"``."""
    may_use_sums: bool = False
    """Whether ranks compute their part of a batch at once, so that they can add up sums inside of a loss."""
    summed_gradients: bool = False
    """The gradients of a training step of the user's own are sums over samples."""
    reduced_at_tape: bool = False
    """Such a step computes with its gradients before an optimizer gets them: ranks reduce them where its tapes make them."""
    noise_in_gradients: bool = False
    """It draws random numbers after that: its optimizers get what rank 0 makes of the gradients."""
    kept_means: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Variables that a step changes by a mean over samples without an optimizer: by the step and their ids."""
    kept_sums: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The same by a sum."""
    kept_alike: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The same in one way for any samples."""
    gathered_metrics: set[int] = field(default_factory=set)
    """Metrics, by their ids, that couple samples: they see those of all ranks."""
    summed_updates: set[tuple[str, int, int]] = field(default_factory=set)
    """Calls that give a metric a sum: the step ("train_step" or "test_step"), the id of the metric, the number of the call."""
    summed_logs: set[tuple[str, int]] = field(default_factory=set)
    """Logs that are sums: the step, and the place in its logs."""

    def kept(self, step: str) -> tuple[list[Any], list[Any], list[Any]]:
        """The variables that a step changes without an optimizer: by a mean, by a sum, and in one way for any samples."""
        means, sums, alike = (
            [variable for (name, _), variable in found.items() if name == step]
            for found in (self.kept_means, self.kept_sums, self.kept_alike)
        )
        return means, sums, alike

    def summary(self) -> dict[str, int]:
        """How many there are of each kind: as many on all ranks."""
        return {name: int(value) if isinstance(value, bool) else len(value) for name, value in vars(self).items()}


class LossStep(batch_sums.PartOfBatch, Protocol):
    """The facts of a step that a loss inside it needs."""

    loss_kinds: LossKinds

    def is_stated(self) -> bool:
        """Whether the user states the number of samples, which may be another than that of the rows of a tensor."""

    def total(self) -> tf.Tensor | None:
        """The number of samples of the batch that is divided among ranks; None if each rank has a batch of its own."""


def across_ranks(loss: Any, step: LossStep) -> Callable[..., tf.Tensor]:
    """A function like the loss of Keras: the sum over ranks of its results, weighted by samples, is the global loss."""

    def scaled(y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        sums = step.loss_kinds.by_sums.get(id(loss))
        if sums is not None:
            with sums.over_ranks(step):
                return loss(y_true, y_pred, sample_weight)
        total = step.total() if id(loss) in step.loss_kinds.gathered else None
        if total is not None:
            with noise.noise_of_batch():
                return loss(*(gathered_rows(tensors, total) for tensors in (y_true, y_pred, sample_weight)))
        value, divisor = adapter.loss_and_divisor(loss, y_true, y_pred, sample_weight)
        if divisor is adapter.ALL_ELEMENTS and id(loss) in step.loss_kinds.summed:
            divisor = adapter.NO_DIVISOR
        if divisor is adapter.ALL_ELEMENTS and step.is_stated():
            divisor = rows_of_batch.size_of(tf.nest.flatten(y_pred)[0])
        if divisor is adapter.ALL_ELEMENTS or step.counts_alone():
            return value
        weight = step.weight()
        share = tf.constant(1.0, tf.float64)  # a sum needs no divisor: each rank adds its own part
        if divisor is not adapter.NO_DIVISOR:
            mine = tf.where(weight > 0, tf.cast(tf.stop_gradient(divisor), tf.float64), 0.0)
            share = tf.math.divide_no_nan(mine, step.divisor_of_all(mine))
        return value * tf.cast(tf.math.divide_no_nan(share, weight), value.dtype)

    return scaled


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def gathered_rows(tensors: Any, total: tf.Tensor) -> Any:
    """The rows of all ranks, of which rank r of n has ``batch[r::n]``, in the order of the batch. Masks go with them."""
    size = runtime.get_size()
    begins = [tf.minimum(tf.constant(rank, tf.int64), total) for rank in range(size)]  # a small batch has no row for some ranks
    order = tf.math.invert_permutation(tf.concat([tf.range(begin, total, size, tf.int64) for begin in begins], 0))

    def gathered(tensor: Any) -> Any:
        if not tf.is_tensor(tensor):
            return tensor
        rows, mask = tf.gather(rows_of_ranks.all_gather(tensor), order), adapter.mask_of(tensor)
        if mask is not None:
            adapter.set_mask(rows, gathered(mask))
        return rows

    return tf.nest.map_structure(gathered, tensors)


def refuse_unreduced(model: Any) -> None:
    """Refuses a loss that gives one number for each sample: it has no mean over the global batch.

    A training step of the user's own may reduce it in any way: the step is tried as a whole (`trial/own_step`).

    Raises:
        UnsupportedError: its reduction is ``None`` or ``"none"``.
    """
    if adapter.has_own(model, "train_step", "compute_loss"):
        return
    for reduction in adapter.loss_reductions(model.loss):
        if reduction.lower() == "none":
            raise UnsupportedError(
                f"a loss with reduction={reduction!r} is not one number: use 'sum_over_batch_size', 'mean', 'sum' or "
                "'mean_with_sample_weight'"
            )
