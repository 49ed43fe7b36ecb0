"""What a user does with `Checkpoint`, and what goes wrong, in short trainings on all ranks."""

from __future__ import annotations

import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, log_messages, raised, run

RANK = tnt.get_rank()
FOLDER = Path(tnt.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None))
SAMPLES, BATCH, STEPS = 50, 10, 5
X = np.random.default_rng(3).normal(size=(SAMPLES, 8)).astype("float32")
Y = X.sum(1, keepdims=True)


def model(*layers: Any, units: int = 1) -> Any:
    keras.utils.set_random_seed(5)
    made = tnt.Model(keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(units, name="last")]))
    made.compile(keras.optimizers.Adam(0.1), "mse")
    return made


def data(seed: int = 4, samples: int = SAMPLES) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:samples], Y[:samples])).shuffle(SAMPLES, seed=seed).batch(BATCH)


def fit(trained: Any, name: str, *callbacks: Any, epochs: int = 1, **options: Any) -> Any:
    every = options.pop("every", {})
    dataset = options.pop("data", None)
    checkpoint = tnt.callbacks.Checkpoint(FOLDER / name, **every)
    given = data() if dataset is None else dataset
    return trained.fit(given, epochs=epochs, verbose=0, callbacks=[*callbacks, checkpoint], **options)


def again(name: str, kept: str | None = None) -> str:
    """A copy of a folder, for a `fit` that stands for the script in another process. kept: only these files."""
    copy = f"{name} again {len(list(FOLDER.iterdir()))}"
    tnt.barrier()
    if RANK == 0:
        shutil.copytree(FOLDER / name, FOLDER / copy)
        for file in (FOLDER / copy).iterdir():
            if kept is not None and file.name != kept:
                file.unlink()
    return str(tnt.broadcast_object(copy))


def files(name: str) -> list[str]:
    tnt.barrier()
    return sorted(file.name for file in (FOLDER / name).iterdir())


class Steps(keras.callbacks.Callback):
    """Counts the steps; `stop` after so many, `fail` in the next."""

    def __init__(self, stop: int | None = None, fail: int | None = None) -> None:
        super().__init__()
        self.count, self._stop, self._fail = 0, stop, fail

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.count == self._fail:
            raise KeyError("broken off")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1
        if self.count == self._stop:
            self.model.stop_training = True


@check
def over() -> list[Any]:
    first, second, third = model(), model(), model()
    logs = fit(first, "over", epochs=2).history
    copy, longer = again("over"), again("over")
    steps, more_steps = Steps(), Steps()
    same_logs = fit(second, copy, steps, epochs=2).history
    same_weights = all(np.array_equal(a, b) for a, b in zip(first.get_weights(), second.get_weights(), strict=True))
    more = fit(third, longer, more_steps, epochs=3)
    return [steps.count, logs == same_logs, same_weights, more.epoch, more_steps.count]


@check
def several_fits() -> list[Any]:
    trained = model()
    first = fit(trained, "several", every={"keep": 1})
    second = fit(trained, "several", epochs=2, every={"keep": 1})
    return [files("several"), first.epoch, second.epoch]


@check
def stopped_in_the_middle() -> list[Any]:
    first, second, steps = model(), model(), Steps()
    history = fit(first, "middle", Steps(stop=2), epochs=2)
    epochs = list(history.epoch)
    copy = again("middle")
    return [epochs, int(first.optimizer.iterations.numpy()), fit(second, copy, steps, epochs=2).epoch, steps.count]


@check
def every_seconds() -> int:
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.05)

    fit(model(), "seconds", Slow(), every={"every_seconds": 0.1, "keep": 100})
    return len(files("seconds"))


@check
def damaged() -> list[Any]:
    whole, second, steps = model(), model(), Steps()
    fit(whole, "damaged", epochs=2, every={"keep": 5})
    copy = again("damaged")
    if RANK == 0:
        newest = FOLDER / copy / "fit1-step000000010.npz"
        newest.write_bytes(newest.read_bytes()[:-1000])
    messages = log_messages()
    fit(second, copy, steps, epochs=2)
    apart = max(float(np.abs(a - b).max()) for a, b in zip(whole.get_weights(), second.get_weights(), strict=True))
    return [steps.count, apart, [message for message in messages if "damaged and" in message]]


@check
def csv() -> list[Any]:
    """A file that has a line more than the checkpoint knows of."""
    whole, log = FOLDER / "whole.csv", FOLDER / "log.csv"
    fit(model(), "whole csv", keras.callbacks.CSVLogger(whole), epochs=3)
    broken = Steps(fail=2 * STEPS + 1)
    error = raised(fit, model(), "csv", keras.callbacks.CSVLogger(log), broken, epochs=3, every={"every_epochs": 1})
    assert error[0] == "KeyError"
    tnt.barrier()
    if RANK == 0:
        with log.open("ab") as file:
            file.write(b"2,12345\r\n")
    fit(model(), "csv", keras.callbacks.CSVLogger(log), epochs=3)
    tnt.barrier()
    return [[line.partition(",")[0] for line in log.read_text().splitlines()], whole.read_text() == log.read_text()]


@check
def disk_full() -> list[Any]:
    return [filled_disk("disk", sharded=False), filled_disk("disk of parts", sharded=True)]


def filled_disk(name: str, sharded: bool) -> list[Any]:
    trained = model(keras.layers.Dense(100))
    fit(trained, name, every={"keep": 3, "sharded": sharded})
    copy, checked = again(name), again(name)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        error = raised(fit, model(keras.layers.Dense(100)), copy, epochs=2, every={"sharded": sharded})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    good = fit(model(keras.layers.Dense(100)), checked).epoch == [0]
    return [error, files(copy), good]


@check
def errors() -> dict[str, list[str]]:
    raised(fit, model(), "errors", Steps(fail=4), every={"every_steps": 3})
    kept = "fit1-step000000003.npz"

    def second_order(change_at: int) -> tf.data.Dataset:
        order = np.arange(SAMPLES)
        order[change_at * BATCH :] = order[change_at * BATCH :][::-1]
        return tf.data.Dataset.from_tensor_slices((X[order], Y[order])).batch(BATCH)

    raised(fit, model(), "ordered", Steps(fail=4), every={"every_steps": 3}, data=second_order(SAMPLES))
    checkpoint = tnt.callbacks.Checkpoint
    plain = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    unknown = data(samples=20).filter(lambda x, y: True)
    return {
        "another_order": raised(fit, model(), again("errors", kept), data=data(seed=5)),
        "another_later_order": raised(fit, model(), again("ordered", kept), data=second_order(1)),
        "another_length": raised(fit, model(), again("errors", kept), data=data().take(4)),
        "ended_early": raised(fit, model(), again("errors", kept), data=data().take(2).filter(lambda x, y: True)),
        "another_model": raised(fit, model(units=3), again("errors", kept)),
        "another_beginning": raised(fit, model(), again("errors", kept), epochs=2, initial_epoch=1),
        "two_of_them": raised(fit, model(), "two", checkpoint(FOLDER / "two")),
        "beside_backup": raised(fit, model(), "two", keras.callbacks.BackupAndRestore(FOLDER / "backup")),
        "plain_model": raised(plain.fit, unknown, callbacks=[checkpoint(FOLDER / "plain")], verbose=0),
        "no_steps": raised(checkpoint, FOLDER, every_steps=0),
        "no_seconds": raised(checkpoint, FOLDER, every_seconds=-1),
        "none_kept": raised(checkpoint, FOLDER, keep=0),
    }


@check
def other_settings() -> list[str]:
    return raised(fit, model(), "others", every={"every_steps": 3 + RANK})


run(sys.argv[1])
tnt.barrier()
if RANK == 0:
    shutil.rmtree(FOLDER)
