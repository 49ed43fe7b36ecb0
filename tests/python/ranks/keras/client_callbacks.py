"""Callbacks that write files by Keras or TensorFlow themselves, on all ranks: checks that `clients.py` runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, raised
from tarantella.keras import files

RANK = tnt.get_rank()
folder = Path(sys.argv[1])
save_model = keras.models.save_model  # as a script imports it, before tnt.Model is used
x = np.random.default_rng(0).uniform(0, 255, (40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True) / 255


def dense(units: int = 1, **options: Any) -> Any:
    return keras.layers.Dense(units, **options)


class Saving(keras.callbacks.Callback):
    """Saves in each epoch, in some way, and remembers the weights."""

    def __init__(self, save: Callable[[Any, int], Any]) -> None:
        super().__init__()
        self.save = save
        self.weights: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.save(self.model, epoch)
        self.weights.append(self.model.get_weights())


def written_by(save: Callable[[Any, int], Any], epochs: int = 2, **options: Any) -> Any:
    """Trains with such a callback. The callback, and the names of the files that this rank has written."""
    names: list[str] = []
    replace = files.replace

    def noting(path: Path, write_to: Callable[[str], Any]) -> None:
        replace(path, write_to)
        names.append(path.name)

    files.replace = noting
    callback = Saving(save)
    inner = keras.Sequential([keras.Input((4,)), dense(64, activation="tanh"), dense()])
    model = tnt.Model(inner, **options)
    model.compile("adam" if options else "sgd", "mse")
    try:
        model.fit(x / 255, y, batch_size=8, epochs=epochs, verbose=0, callbacks=[callback])
    finally:
        files.replace = replace
    return callback, names


def holds(path: Path, weights: list[Any]) -> bool:
    loaded = keras.models.load_model(path, compile=False).get_weights()
    return all(np.array_equal(a, b) for a, b in zip(loaded, weights, strict=True))


@check
def saves_of_a_callback() -> dict[str, Any]:
    """For each way to save: whether the file of the last epoch is whole and right, and what this rank wrote."""

    def by_method(model: Any, epoch: int) -> None:
        model.save(folder / f"method{epoch}.keras")

    def by_function(model: Any, epoch: int) -> None:
        save_model(model, folder / f"function{epoch}.keras")
        assert Path(folder, f"function{epoch}.keras").exists()  # on every rank, as soon as the call ends

    def by_rank(model: Any, epoch: int) -> None:
        model.save(folder / f"rank{RANK}_{epoch}.keras")

    def by_master(model: Any, epoch: int) -> None:
        if tnt.is_master_rank():
            model.save(folder / f"master{epoch}.keras")
        tnt.barrier()
        assert Path(folder, f"master{epoch}.keras").exists()

    def by_other_rank(model: Any, epoch: int) -> None:
        if RANK == 1:
            model.save(folder / f"other{epoch}.h5")

    found = {}
    ways = {"method{}.keras": by_method, "function{}.keras": by_function, f"rank{RANK}_{{}}.keras": by_rank}
    ways |= {"master{}.keras": by_master, "other{}.h5": by_other_rank}
    for name, save in ways.items():
        callback, names = written_by(save)
        path = folder / name.format(1)
        found[save.__name__] = [holds(path, callback.weights[1]), sorted(names)]
        tnt.barrier()
    return found


@check
def a_save_with_a_spread_optimizer() -> list[Any]:
    """The ranks hold a part of the optimizer's state each: whether the file has all of it, and who wrote it."""
    if hasattr(keras, "__internal__"):  # legacy Keras cannot
        return []
    path = folder / "spread.keras"
    callback, names = written_by(lambda model, epoch: model.save(path), shard_optimizer=True)
    loaded = keras.models.load_model(path)
    moments = [np.abs(np.asarray(variable)).max() for variable in loaded.optimizer.variables if len(variable.shape) == 2]
    return [holds(path, callback.weights[1]), len(moments), bool(np.all(np.array(moments) > 0)), len(names)]


@check
def weights_of_a_callback() -> list[Any]:
    """The file, and one of a model inside."""

    def save(model: Any, epoch: int) -> None:
        model.save_weights(folder / "weights.weights.h5")
        model.load_weights(folder / "weights.weights.h5")

    callback, names = written_by(save)
    return [names, len(callback.weights)]


@check
def a_save_that_fails() -> list[Any]:
    missing = folder / "missing" / "model.keras"
    return raised(written_by, lambda model, epoch: model.save(missing))


@check
def a_checkpoint_manager_in_a_callback() -> list[Any]:
    """The files that are left, and whether they hold the weights of the last epoch."""
    managers = []

    def save(model: Any, epoch: int) -> None:
        if not managers:
            managers.append(tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(folder / "manager"), 2))
        managers[0].save()

    callback, _ = written_by(save, epochs=3)
    inner = keras.Sequential([keras.Input((4,)), dense(64, activation="tanh"), dense()])
    tf.train.Checkpoint(model=inner).restore(managers[0].latest_checkpoint).expect_partial()
    same = all(np.array_equal(a, b) for a, b in zip(inner.get_weights(), callback.weights[-1], strict=True))
    return [sorted(p.name for p in (folder / "manager").glob("*.index")), same]


@check
def a_file_that_another_rank_has() -> list[str]:
    """TensorFlow's error in a callback of all ranks ends with what to do."""

    def save(model: Any, epoch: int) -> None:
        if RANK == 1:
            raise FileExistsError(17, "it is there", "shared.txt")

    return raised(written_by, save)


@check
def a_cache_in_a_file() -> list[Any]:
    path = folder / "cache"
    data = tf.data.Dataset.from_tensor_slices((x[:36], y[:36])).cache(str(path)).batch(8)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), dense()]))
    model.compile("sgd", "mse")
    model.fit(data, epochs=2, verbose=0)
    return [path.with_name(f"cache.rank{RANK}.index").exists()]


@check
def a_saved_dataset_and_a_snapshot() -> list[Any]:
    """All ranks save one dataset, and load it; the same with a snapshot: the numbers that were saved, and the folders."""
    numbers = tf.data.Dataset.range(20).map(lambda i: i + tf.cast(RANK, tf.int64))
    found: list[Any] = []
    for save, load in (
        (numbers.save, tf.data.Dataset.load),
        (functools.partial(tf.data.experimental.save, numbers), tf.data.experimental.load),
    ):
        path = folder / f"saved{len(found)}"
        save(str(path))
        found.append([int(i) for i in load(str(path))])
    snapshot = numbers.snapshot(path=str(folder / "snapshot"))
    found.append([int(i) for _ in range(2) for i in snapshot])
    tnt.barrier()
    return [*found, sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(("saved", "snapshot")))]
