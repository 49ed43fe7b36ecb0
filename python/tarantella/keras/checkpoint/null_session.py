"""A `fit` without a `Checkpoint`, which says what a session is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class NullSession:
    """A `fit` without a `Checkpoint`, and the interface of `CheckpointSession`. All methods but `running` are collective."""

    validates_in_step = True
    """Whether all ranks have as many batches of a validation, and Keras' own method for it."""

    @property
    def seed(self) -> int | None:
        """The global seed of TensorFlow with which the training began; None if it begins now."""
        return None

    def fingerprinted(self, dataset: tf.data.Dataset, steps: int | None, has_shares: bool = True) -> tf.data.Dataset:
        """The dataset that `fit` shall train on in the place of this one.

        Args:
            dataset: of batches.
            steps: as `fit` gets ``steps_per_epoch``.
            has_shares: whether batches come with their shares.
        """
        return dataset

    def validate_on(self, data: Any, steps: int | None) -> None:
        """Says what Keras' `fit` gets as validation data, and ``validation_steps``."""

    def finished_history(self) -> Any:
        """If the training is over already: its `History`, after the model was given its last state. Otherwise None."""
        return None

    def callbacks_for_keras(self, callbacks: Sequence[Any], verbose: Any, epochs: Any) -> list[Any]:
        """The list of callbacks for Keras' `fit`.

        Args:
            callbacks: the list without checkpoints.
            verbose: as `fit` takes it.
            epochs: the callback that announces epochs to the source of batches.
        """
        return [*callbacks, epochs]

    def take_over(self) -> None:
        """This rank is the master now, as those before it were lost, and writes what they would have. Not collective."""

    def progress(self) -> dict[str, Any]:
        """What a newcomer of an elastic job needs to know of it."""
        return {}

    def join(self, progress: dict[str, Any]) -> None:
        """This rank was a newcomer until now. Not collective. progress: of another rank."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keras' `fit` runs in this context. However it ends, no file is half-written afterwards."""
        yield
