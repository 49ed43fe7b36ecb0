"""Learning rates for large batches: the rate of one rank times the number of ranks, after a warm-up.

With n ranks a global batch is usually n times as large as on one device, and the learning rate may be n times as high. At the
beginning that is too high, so the rate rises linearly over the first epochs.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella import generations
from tarantella.keras.adapter import keras

__all__ = ["ExpDecayWithWarmup", "PiecewiseConstantDecayWithWarmup"]


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """The warm-up, which both schedules have in common."""

    def __init__(self, base_rate: float, steps_per_epoch: int, warmup_epochs: float, ranks: int | None, name: str) -> None:
        super().__init__()
        self.base_rate = float(base_rate)
        self.steps_per_epoch = int(steps_per_epoch)
        self.warmup_epochs = float(warmup_epochs)
        self.ranks = generations.size_for_script() if ranks is None else int(ranks)
        self.name = name
        if self.base_rate < 0 or self.steps_per_epoch < 1 or self.warmup_epochs < 0 or self.ranks < 1:
            raise ValueError(
                f"{name}: base_rate={base_rate}, steps_per_epoch={steps_per_epoch}, warmup_epochs={warmup_epochs}, "
                f"ranks={ranks}: the steps of an epoch and the ranks must be at least 1, the others not negative"
            )

    @property
    def peak_rate(self) -> float:
        """The rate at the end of the warm-up: the base rate times the number of ranks."""
        return self.base_rate * self.ranks

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of a step, counted from 0: a scalar, float32."""
        # floating-point numbers count steps exactly up to 16 million
        steps = tf.cast(step, tf.float32)
        rise = (steps + 1.0) / max(1.0, self.warmup_epochs * self.steps_per_epoch)
        epochs = steps / self.steps_per_epoch
        factor = tf.where(epochs < self.warmup_epochs, tf.minimum(rise, 1.0), self._decay(epochs))
        return self.peak_rate * factor

    def _decay(self, epochs: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {
            "base_rate": self.base_rate,
            "steps_per_epoch": self.steps_per_epoch,
            "warmup_epochs": self.warmup_epochs,
            "ranks": self.ranks,
            "name": self.name,
        }


@keras.saving.register_keras_serializable(package="tarantella")
class ExpDecayWithWarmup(_Warmup):
    """The rate rises linearly to ``base_rate * ranks`` and then falls exponentially.

    After the warm-up it is ``base_rate * ranks * decay_rate ** (epochs since the warm-up / decay_epochs)``.

    Args:
        base_rate: the right rate for one rank's batch.
        steps_per_epoch: the number of steps (global batches) of an epoch.
        decay_epochs: the number of epochs in which the rate falls by the factor `decay_rate`.
        decay_rate: the factor.
        warmup_epochs: the number of epochs in which the rate rises. 0: no warm-up.
        staircase: whether the rate falls in steps, one each `decay_epochs`.
        ranks: the number of ranks; None: as many as the job has. A file keeps the number, so that a loaded training does not
            change its rate.

    Raises:
        ValueError: an argument is out of range.

    Examples:
        >>> schedule = tnt.keras.schedules.ExpDecayWithWarmup(0.1, steps_per_epoch=100, decay_epochs=30, decay_rate=0.1)
        >>> model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "mse")
    """

    def __init__(
        self,
        base_rate: float,
        steps_per_epoch: int,
        decay_epochs: float = 30,
        decay_rate: float = 0.1,
        warmup_epochs: float = 5,
        staircase: bool = False,
        ranks: int | None = None,
        name: str = "ExpDecayWithWarmup",
    ) -> None:
        super().__init__(base_rate, steps_per_epoch, warmup_epochs, ranks, name)
        self.decay_epochs = float(decay_epochs)
        self.decay_rate = float(decay_rate)
        self.staircase = bool(staircase)
        if self.decay_epochs <= 0 or self.decay_rate <= 0:
            raise ValueError(f"{name}: decay_epochs={decay_epochs} and decay_rate={decay_rate} must be positive")

    def _decay(self, epochs: tf.Tensor) -> tf.Tensor:
        passed = (epochs - self.warmup_epochs) / self.decay_epochs
        return tf.pow(tf.constant(self.decay_rate, tf.float32), tf.floor(passed) if self.staircase else passed)

    def get_config(self) -> dict[str, Any]:
        own = {"decay_epochs": self.decay_epochs, "decay_rate": self.decay_rate, "staircase": self.staircase}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tarantella")
class PiecewiseConstantDecayWithWarmup(_Warmup):
    """The rate rises linearly to ``base_rate * ranks`` and then falls at given epochs.

    Args:
        base_rate, steps_per_epoch, warmup_epochs, ranks: as for `ExpDecayWithWarmup`.
        boundaries: epochs, counted from 0, in ascending order.
        multipliers: factors of ``base_rate * ranks``: before the first boundary, from it to the second, and so on. There is one
            more than boundaries.

    Raises:
        ValueError: an argument is out of range.

    Examples:
        >>> schedule = tnt.keras.schedules.PiecewiseConstantDecayWithWarmup(0.1, steps_per_epoch=5004)  # ResNet-50's
    """

    def __init__(
        self,
        base_rate: float,
        steps_per_epoch: int,
        boundaries: Sequence[float] = (30, 60, 80),
        multipliers: Sequence[float] = (1.0, 0.1, 0.01, 0.001),
        warmup_epochs: float = 5,
        ranks: int | None = None,
        name: str = "PiecewiseConstantDecayWithWarmup",
    ) -> None:
        super().__init__(base_rate, steps_per_epoch, warmup_epochs, ranks, name)
        self.boundaries = [float(epoch) for epoch in boundaries]
        self.multipliers = [float(multiplier) for multiplier in multipliers]
        if len(self.multipliers) != len(self.boundaries) + 1 or self.boundaries != sorted(self.boundaries):
            raise ValueError(
                f"{name}: boundaries={self.boundaries} must ascend, and multipliers={self.multipliers} be one more than these"
            )

    def _decay(self, epochs: tf.Tensor) -> tf.Tensor:
        passed = tf.reduce_sum(tf.cast(epochs >= tf.constant(self.boundaries, tf.float32), tf.int32))
        return tf.gather(tf.constant(self.multipliers, tf.float32), passed)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "boundaries": self.boundaries, "multipliers": self.multipliers}
