"""Loss, learning rate and time of the Transformer's training."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

keras = tf.keras


class SmoothedLoss(keras.losses.Loss):
    """Cross-entropy with a target that is `smoothing` away from certain; the rest is spread over the whole vocabulary.

    Each position counts alike, and the weights of the data leave padding out. As all batches have about as many positions, each
    token counts alike in all batches.
    """

    def __init__(self, smoothing: float = 0.1, name: str = "smoothed", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.smoothing = smoothing

    def call(self, tokens: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """A number for each token, without (batch, length, vocabulary) of targets."""
        logits = tf.cast(logits, tf.float32)
        certain = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(tokens, tf.int32), logits=logits)
        spread = tf.reduce_logsumexp(logits, -1) - tf.reduce_mean(logits, -1)
        return (1 - self.smoothing) * certain + self.smoothing * spread

    def get_config(self) -> dict[str, Any]:
        return {"smoothing": self.smoothing, "name": self.name}


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rises in a line for `warmup_steps` to `rate / sqrt(width * warmup_steps)`, and then falls with the root of the step."""

    def __init__(self, rate: float, width: int, warmup_steps: int) -> None:
        super().__init__()
        self.rate, self.width, self.warmup_steps = rate, width, warmup_steps

    def __call__(self, step: Any) -> tf.Tensor:
        step = tf.cast(step, tf.float32) + 1
        return self.rate * self.width**-0.5 * tf.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    def get_config(self) -> dict[str, Any]:
        return {"rate": self.rate, "width": self.width, "warmup_steps": self.warmup_steps}


class TimeHistory(keras.callbacks.Callback):
    """Tokens per second of each epoch. It runs on one rank (`tnt.callbacks.Callback`), as all ranks take the same time."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.tokens_per_second: dict[int, float] = {}
        self._begin = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.tokens_per_second[epoch] = self.tokens / (time.perf_counter() - self._begin)

    def get_state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"epochs": list(self.tokens_per_second), "speeds": list(self.tokens_per_second.values())}

    def set_state(self, state: dict[str, Any]) -> None:
        self.tokens_per_second = dict(zip(state["epochs"], state["speeds"], strict=True))
