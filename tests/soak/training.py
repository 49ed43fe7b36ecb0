"""A training with checkpoints that may be killed and started again: `training.py FOLDER RESULT [EPOCHS]`.

Rank 0 writes to FOLDER/begun with which step each start went on, and to RESULT a hash of all weights and of the optimizer's
state when the training is over. Model and data have what depends on ranks most easily: BatchNormalization, dropout, a shuffle,
random augmentation, a last batch that is short.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import tarantella as tnt

import keras  # isort: skip
import numpy as np
import tensorflow as tf

BATCH, SAMPLES, SIDE = 32, 300, 16


def model() -> Any:
    """Large enough that its checkpoints take some time to write."""
    return keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 1)),
            keras.layers.RandomFlip("horizontal", seed=5),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dropout(0.3, seed=7),
            keras.layers.Dense(10),
        ]
    )


class Begun(keras.callbacks.Callback):
    """Notes how many steps were done before the first one of this start."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "begun"
        self._noted = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The first time counts."""
        if not self._noted and tnt.is_master_rank():
            self._noted = True
            with self._file.open("a") as file:
                file.write(f"{int(self.model.optimizer.iterations) - 1}\n")


def digest(arrays: list[np.ndarray]) -> str:
    """Of all bits."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def main(folder: Path, result: Path, epochs: int) -> None:
    keras.utils.set_random_seed(11)
    random = np.random.default_rng(3)
    x = random.normal(size=(SAMPLES, SIDE, SIDE, 1)).astype(np.float32)
    y = random.integers(0, 10, SAMPLES)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES, seed=13).batch(BATCH)
    trained = tnt.Model(model())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, metrics=["accuracy"])
    callbacks = [tnt.callbacks.Checkpoint(folder / "checkpoints", every_steps=4, keep=3), Begun(folder)]
    trained.fit(dataset, epochs=epochs, verbose=0, callbacks=callbacks)
    if tnt.is_master_rank():
        state = [np.asarray(variable) for variable in trained.optimizer.variables]
        beside = result.with_suffix(".part")
        beside.write_text(digest([*trained.get_weights(), *state]))
        os.replace(beside, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3)
