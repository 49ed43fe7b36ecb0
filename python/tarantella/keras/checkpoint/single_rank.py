"""`fit` with checkpoints on one rank: Keras' own, on batches whose position is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tarantella import seeding
from tarantella.keras import adapter
from tarantella.keras.checkpoint.callback import without
from tarantella.keras.checkpoint.session import CheckpointSession

if TYPE_CHECKING:
    from tarantella.keras.checkpoint.callback import Checkpoint


def fit(
    model: Any,
    settings: Checkpoint,
    x: Any,
    y: Any,
    batch_size: int | None,
    callbacks: Any,
    validation_split: float,
    validation_data: Any,
    shuffle: bool,
    class_weight: Any,
    sample_weight: Any,
    steps_per_epoch: int | None,
    validation_batch_size: int | None,
    verbose: Any,
    validation_steps: int | None,
    epochs: int,
    initial_epoch: int,
    validation_freq: Any,
    **loading: Any,
) -> Any:
    """Keras' `fit` of a compiled model, with its arguments."""
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = adapter.validation_split(x, y, sample_weight, validation_split)
    others = without(callbacks)
    saving = CheckpointSession(settings, others, model, None, initial_epoch, epochs)
    seeding.agree_on_global_seed(saving.seed)
    rounds = {"model": model, "epochs": epochs - initial_epoch}
    source = adapter.source(x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, **rounds, **loading)
    steps_per_epoch = adapter.steps_of(source, steps_per_epoch)
    training = saving.watched(adapter.batches(source), steps_per_epoch, has_shares=False)
    adapter.build(model, training.element_spec)
    outcome = saving.outcome()
    if outcome is not None:
        return outcome
    with saving.running():
        return model.fit(
            training,
            shuffle=False,  # as it is already, where it shall be
            verbose=verbose,
            callbacks=saving.around(others, verbose, adapter.Epochs(source)),
            validation_data=validation_data,
            validation_batch_size=validation_batch_size or batch_size,
            validation_steps=validation_steps,
            steps_per_epoch=steps_per_epoch,
            epochs=epochs,
            initial_epoch=initial_epoch,
            validation_freq=validation_freq,
        )
