"""Reproducible trainings with `shard_optimizer=True` that go on from each other's files: `other_ranks.py FOLDER WHAT...`.

Each WHAT is one of the functions below, with its argument after a colon. Rank 0 prints what they give, by these words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras

import tarantella as tnt
from sharding_recipes import data, digest, with_table

FOLDER = Path(sys.argv[1])
HOW = {"shard_optimizer": True, "reproducible": 8}


def fresh() -> Any:
    model = tnt.Model(with_table(), **HOW)
    model.compile(keras.optimizers.Nadam(0.01, clipnorm=0.1), keras.losses.MeanSquaredError())
    return model


def epoch(model: Any, **how: Any) -> list[Any]:
    """The hash after one more epoch, and its loss."""
    losses = model.fit(data(), verbose=0, **how).history["loss"]
    return [digest(model), [loss.hex() for loss in losses]]


def first(name: str) -> list[Any]:
    """One epoch, with its files."""
    model = fresh()
    backup = keras.callbacks.BackupAndRestore(FOLDER / f"{name}-backup", delete_checkpoint=False)
    found = epoch(model, callbacks=[backup])
    model.save(FOLDER / f"{name}.keras")
    return found


def on(name: str) -> list[Any]:
    """An epoch more than that file has, which is written, too."""
    model = tnt.Model(keras.models.load_model(FOLDER / f"{name}.keras"), **HOW)
    return epoch(model)


def restored(name: str) -> list[Any]:
    """The second of two epochs, after the first one's backup, with a file."""
    model = fresh()
    found = epoch(model, epochs=2, callbacks=[keras.callbacks.BackupAndRestore(FOLDER / f"{name}-backup")])
    model.save(FOLDER / f"restored-{name}.keras")
    return found


def whole(name: str) -> list[Any]:
    """Three epochs; after them the weights and the state after the first one are loaded, and the second epoch comes again."""
    model = fresh()
    epochs = [epoch(model, callbacks=[keras.callbacks.BackupAndRestore(FOLDER / f"{name}-backup", delete_checkpoint=False)])]
    model.save(FOLDER / f"{name}.keras")
    model.save_weights(FOLDER / f"{name}.weights.h5")
    epochs += [epoch(model), epoch(model)]
    model.load_weights(FOLDER / f"{name}.weights.h5")
    return [*epochs, epoch(model)]


found = {}
for word in sys.argv[2:]:
    function, _, argument = word.partition(":")
    found[word] = globals()[function](argument)
if tnt.is_master_rank():
    print(json.dumps(found))
