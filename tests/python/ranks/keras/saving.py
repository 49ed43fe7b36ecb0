"""Saving and loading on several ranks."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run
from tarantella.keras import files
from tarantella.keras.reduction import reducer

RANK = tnt.get_rank()
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(10)

model = tnt.Model(keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)]))
model.compile("adam", "mse")
model.fit(dataset, verbose=0)


def flat(weights: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in weights]).tolist()


def there(pattern: str = "*") -> list[str]:
    return sorted(file.name for file in Path(folder, "files").glob(pattern))


if RANK == 0:
    Path(folder, "files").mkdir()
tnt.barrier()


@check
def save() -> list[Any]:
    """Written when all ranks come back, once, under its own name; a plain Keras file."""
    path = Path(folder, "files", "model.keras")
    model.save(path)
    written = there(".*") + there()
    inode = path.stat().st_ino
    tnt.barrier()
    model.save(path, overwrite=True)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
    loaded = keras.models.load_model(path)
    # the loaded model predicts all of x at once: a product of another shape may sum in another order
    same = np.allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6, atol=1e-6)
    of_optimizer = [np.asarray(v) for v in loaded.optimizer.variables]
    return [
        written,
        path.stat().st_ino != inode,
        type(loaded) is keras.Sequential,
        "tarantella" in config,
        bool(same),
        flat(of_optimizer) == flat([np.asarray(v) for v in model.optimizer.variables]),
    ]


class LostSums:
    """In the place of a reducer of a GPU whose last step was aborted."""

    device = 0

    def check(self) -> None:
        raise tnt.TarantellaError("the sums are lost")


@check
def lost_sums_are_neither_saved_nor_returned() -> list[Any]:
    lost, path = LostSums(), Path(folder, "files", "lost.keras")
    reducer._open_reducers.add(lost)
    try:
        checkpoint = keras.callbacks.ModelCheckpoint(path)
        return [
            raised(lambda: model.save(path)),
            raised(lambda: model.fit(dataset, verbose=0)),
            raised(lambda: model.fit(dataset, verbose=0, callbacks=[checkpoint])),
            path.exists(),
        ]
    finally:
        reducer._open_reducers.discard(lost)


@check
def save_as_h5() -> list[str]:
    model.save(Path(folder, "files", "model.h5"))
    return there("*.h5")


@check
def save_on_all_ranks() -> list[str]:
    model.save(Path(folder, "files", f"mine{RANK}.keras"), tnt_save_all_devices=True)
    tnt.barrier()
    return there("mine*")


@check
def training_goes_on_from_a_file() -> list[float]:
    loaded = tnt.Model(keras.models.load_model(Path(folder, "files", "model.keras")))
    loaded.fit(dataset, verbose=0)
    return flat(loaded.get_weights())


@check
def weights_there_and_back() -> list[bool]:
    path = Path(folder, "files", "some.weights.h5")
    model.save_weights(path)
    before = model.get_weights()
    model.set_weights([w + 1 for w in before])
    changed = flat(model.get_weights()) != flat(before)
    model.load_weights(path)
    return [changed, flat(model.get_weights()) == flat(before), there("*.weights.h5") == ["some.weights.h5"]]


@check
def saving_fails() -> list[list[str]]:
    """On all ranks, if it does on the one that writes."""
    return [
        raised(model.save, Path(folder, "no such folder", "model.keras")),
        raised(model.save, Path(folder, "files", "model.nonsense")),
        raised(model.save_weights, Path(folder, "files", "model.nonsense")),
    ]


@check
def a_failed_write_leaves_the_old_file() -> list[Any]:
    path = Path(folder, "files", "text.keras")
    files.write(path, lambda beside: Path(beside).write_text("old"))

    def half(beside: str) -> None:
        Path(beside).write_text("new, but not a")
        raise OSError("no space left")

    error = raised(files.write, path, half)
    return [error, path.read_text()]


@check
def nothing_else_is_left() -> list[str]:
    tnt.barrier()
    return there(".*") + there()


run(sys.argv[1])
