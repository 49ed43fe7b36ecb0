"""Files that are written and read while a pipeline is trained: checkpoints, and those of callbacks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt
from checks import check, raised, run
from pipelines import (
    BATCH,
    FOLDER,
    MICRO_BATCHES,
    OPTIMIZERS,
    PIPELINING,
    RANK,
    SIZE,
    compile_arguments,
    hexed,
    mlp,
    saved,
    serial,
    sha,
)

CHECKPOINTS = Path(os.environ["CHECKPOINTS"])  # a folder in which each job finds those of the jobs before


@check
def not_stopped() -> Any:
    return serial("mlp") if SIZE == 1 else None


class Stop(keras.callbacks.Callback):
    """Ends the training with an exception after a step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyError("stopped")


def interrupted(folder: Path, steps: int | None, **arguments: Any) -> Any:
    """The training of the MLP with checkpoints, up to a step, or to its end: then what is compared."""
    keras.utils.set_random_seed(7)
    plain, (x, y) = mlp()
    model = tnt.Model(plain, reproducible=MICRO_BATCHES, **arguments)
    model.compile(optimizer=OPTIMIZERS["mlp"](), **compile_arguments("mlp"))
    callbacks = [tnt.callbacks.Checkpoint(folder, every_steps=1, sharded=SIZE > 1), *([] if steps is None else [Stop(steps)])]

    def fit() -> Any:
        return model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_split=0.25, callbacks=callbacks)

    if steps is not None:
        return raised(fit)
    history = fit().history
    loaded = saved(model, x, f"continued-{folder.name}")
    return {
        "history": hexed(history),
        "weights": sha(model.get_weights()),
        "optimizer": loaded["optimizer"],
        "file": loaded["file"],
    }


def copied(ranks: int, name: str) -> Path:
    """A copy of the checkpoints that the job with this many ranks has left, for all ranks of this one."""
    folder = FOLDER / name
    if RANK == 0:
        shutil.copytree(CHECKPOINTS / str(ranks), folder)
    tnt.barrier()
    return folder


@check
def stops_with_checkpoints() -> Any:
    """In the second epoch."""
    arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "pipeline_stages": ["c"]}
    return interrupted(CHECKPOINTS / str(SIZE), 5, **arguments)[0]


@check
def goes_on_from_checkpoints() -> Any:
    """Two ranks go on from the checkpoints of one, in stages, and from the parts of other stages, without any."""
    if SIZE == 1:
        return {}
    arguments = {"parallel_strategy": PIPELINING, "pipeline_stages": ["late"]}
    return {
        "in stages": interrupted(copied(1, "in-stages"), None, **arguments),
        "without": interrupted(copied(2, "without"), None),
    }


@check
def backup_and_restore() -> Any:
    """Stopped in the second epoch, and restored in other stages, as a training on one rank that is not stopped."""

    def training(stage: str, *callbacks: Any) -> Any:
        keras.utils.set_random_seed(7)
        plain, (x, y) = mlp()
        arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "pipeline_stages": [stage]}
        model = tnt.Model(plain, reproducible=MICRO_BATCHES, **arguments)
        model.compile(optimizer=OPTIMIZERS["mlp"](), **compile_arguments("mlp"))
        history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, shuffle=False, callbacks=list(callbacks))
        return {"epochs": history.epoch, "weights": sha(model.get_weights()), **saved(model, x, "restored")}

    if SIZE == 1:
        return training("")

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(FOLDER / "backup", delete_checkpoint=False)

    stopped, restored = raised(training, "c", backup(), Stop(6)), training("late", backup())
    tnt.barrier()
    if RANK == 0:
        (FOLDER / "backup/latest.weights.h5").write_bytes(b"damaged")
    tnt.barrier()
    return {"stopped": stopped, "restored": restored, "damaged": raised(training, "c", backup())}


class SavesItself(keras.callbacks.Callback):
    """Writes the model, on all ranks or on the master alone, as it is told."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = str(file)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.save(self._file)


@check
def callbacks_that_write() -> Any:
    """Files of Keras' callback and of a user's own, and the best weights, which are those after the first epoch."""
    if SIZE != 2:
        return None
    keras.utils.set_random_seed(7)
    plain, (x, y) = mlp()
    model = tnt.Model(plain, PIPELINING, pipeline_stages=["c"])
    model.compile(optimizer=OPTIMIZERS["mlp"](), **compile_arguments("mlp"))
    files = [FOLDER / name for name in ("all.keras", "master.keras", "epoch1.keras", "epoch2.weights.h5")]
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=1, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(str(FOLDER / "epoch{epoch}.keras")),
        keras.callbacks.ModelCheckpoint(str(FOLDER / "epoch{epoch}.weights.h5"), save_weights_only=True, save_freq=4),
        SavesItself(files[0]),
        tnt.callbacks.Callback(SavesItself(files[1])),
    ]
    history = model.fit(x, y, batch_size=BATCH, epochs=5, verbose=0, shuffle=False, callbacks=callbacks)
    restored = sha(model.get_weights())
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, shuffle=False)
    loaded = [keras.models.load_model(file) for file in files[:3]]
    after_8_steps = mlp()[0]
    after_8_steps.load_weights(files[3])
    return {
        "epochs": len(history.history["loss"]),
        "restored": restored,
        "trained on": sha(model.get_weights()),
        "files": [sha(one.get_weights()) for one in (*loaded, after_8_steps)],
        "steps": [int(one.optimizer.iterations) for one in loaded],
        "slots": [sum(float(np.abs(v).sum()) > 0 for v in one.optimizer.variables) for one in loaded],
    }


run(*sys.argv[1:])
