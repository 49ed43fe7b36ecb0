"""Every callback of Keras on several ranks beside serial Keras, a user's own, and what happens if ranks do different things."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import callback_agreement  # noqa: F401  its checks run, too
import tarantella as tnt
from callback_runs import (
    FOLDER,
    MINE,
    RANK,
    STEPS,
    WITH_NAN,
    Callback,
    Fresh,
    Keep,
    callbacks,
    distributed,
    fit,
    flat,
    leave_plain,
    like_serial,
    plain,
    x,
    y,
)
from checks import check, raised, run

BACKUP_OPTIONS = inspect.signature(keras.callbacks.BackupAndRestore.__init__).parameters

# ------------------------------------------------------------------------------------------------- Keras' own, which decide


@check
def early_stopping() -> list[Any]:
    def make() -> list[Any]:
        return [keras.callbacks.EarlyStopping("val_loss", min_delta=0.35, patience=1, restore_best_weights=True)]

    epochs, logs, weights, (before,), (after,) = like_serial(make, epochs=9)
    return [epochs, logs, weights, before.stopped_epoch == after.stopped_epoch, before.best_epoch == after.best_epoch]


@check
def evaluation_between_steps() -> list[Any]:
    """What a callback evaluates in an epoch by Keras' own method counts in its metrics, as in plain Keras, once."""

    class Evaluate(Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.model.evaluate(x[:10], y[:10] + 1, batch_size=5, verbose=0)

    epochs, logs, weights, *_ = like_serial(lambda: [Evaluate()], epochs=2)
    return [epochs, logs, weights]


@check
def batches_of_a_callback_between_steps() -> list[Any]:
    """The same of a single batch, which Keras adds to the metrics that there are, or to new ones, by its version."""

    class OneBatch(Callback):
        def __init__(self, method: str) -> None:
            super().__init__()
            self._method = method

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                getattr(self.model, self._method)(x[:10], y[:10] + 1)

    methods = ("test_on_batch", "train_on_batch")
    epochs, logs, weights, *_ = zip(
        *(like_serial(lambda name=name: [OneBatch(name)], epochs=2) for name in methods), strict=True
    )
    return [max(epochs), max(logs), max(weights)]


@check
def reduce_on_plateau() -> list[Any]:
    def make() -> list[Any]:
        return [keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=10.0)]

    epochs, logs, weights, _, _ = like_serial(make, epochs=6)
    return [epochs, logs, weights]


@check
def learning_rate_scheduler() -> list[Any]:
    epochs, logs, weights, _, _ = like_serial(lambda: [keras.callbacks.LearningRateScheduler(lambda n, rate: rate / (n + 1))])
    return [epochs, logs, weights]


@check
def swap_ema_weights() -> list[Any]:
    def make() -> list[Any]:
        return [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]

    models = [Fresh(wrap, use_ema=True, ema_momentum=0.8) for wrap in (leave_plain, tnt.Model)]
    epochs, logs, weights, _, _ = like_serial(make, models)
    return [epochs, logs, weights]


@check
def terminate_on_nan() -> list[Any]:
    """The steps that were made, and what comes of an error on all ranks, after which they go on."""
    model = distributed()
    fit(model, [keras.callbacks.TerminateOnNaN()], WITH_NAN)
    steps = int(model.optimizer.iterations)
    model = distributed()
    error = raised(fit, model, [keras.callbacks.TerminateOnNaN(raise_error=True)], WITH_NAN)
    return [steps, error, len(fit(distributed(), [], epochs=1).history["loss"])]


@check
def who_speaks() -> str:
    """What decisions print."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        given = [
            keras.callbacks.EarlyStopping("loss", min_delta=10.0, verbose=1),
            keras.callbacks.LearningRateScheduler(lambda n: 0.01, verbose=1),
        ]
        fit(distributed(), given)
    return said.getvalue()


# --------------------------------------------------------------------------------------------- Keras' own, which write or show


@check
def csv_and_checkpoints() -> list[Any]:
    """Files of serial Keras, of the distributed run, and those of this rank alone."""

    def make(folder: Path) -> list[Any]:
        return [
            keras.callbacks.CSVLogger(folder / "log.csv"),
            keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
            keras.callbacks.ModelCheckpoint(folder / "{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=3),
            keras.callbacks.TensorBoard(folder / "board"),
        ]

    for folder in (MINE / "serial", MINE / "ours"):
        folder.mkdir()
    fit(plain(), make(MINE / "serial"))
    model = distributed()
    fit(model, make(MINE / "ours"))
    serial, ours = ({str(p.relative_to(f)) for p in f.glob("*")} for f in (MINE / "serial", MINE / "ours"))
    if RANK == 0:
        rows = [np.genfromtxt(MINE / kind / "log.csv", delimiter=",", names=True) for kind in ("serial", "ours")]
        assert rows[0].dtype == rows[1].dtype
        logs = max(float(np.abs(rows[0][n] / rows[1][n] - 1).max()) for n in rows[0].dtype.names if n != "epoch")
        best = [keras.saving.load_model(MINE / kind / "best.keras") for kind in ("serial", "ours")]
        weights = float(np.abs(flat(best[0]) - flat(best[1])).max())
        return [sorted(serial), sorted(ours), logs, weights, sorted(p.name for p in (MINE / "ours" / "board").iterdir())]
    return [sorted(serial), sorted(ours)]


@check
def tensorboard_everywhere() -> list[str]:
    once = keras.callbacks.TensorBoard(FOLDER / "once")
    everywhere = callbacks.Callback(keras.callbacks.TensorBoard(FOLDER / "all"), run_on_all_ranks=True)
    fit(distributed(), [once, everywhere], epochs=1)
    tnt.barrier()
    return sorted({str(path.parent.relative_to(FOLDER)) for path in FOLDER.rglob("events.*")})


@check
def remote_monitor() -> list[Any]:
    import requests

    posted = []
    original, requests.post = requests.post, lambda url, data, **kwargs: posted.append(json.loads(data["data"])["epoch"])
    fit(distributed(), [keras.callbacks.RemoteMonitor()])
    requests.post = original
    return posted


@check
def progress() -> list[str]:
    """What is shown of a serial run and of ours, without times."""
    shown = []
    for model in (plain(), distributed()):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            fit(model, [], epochs=2, verbose=2)
            model.evaluate(x, y, batch_size=12, verbose=2)
        lines = re.sub(r" - \d+m?s( - \d+m?s/step)?", "", text.getvalue())
        shown.append(re.sub(r"(\d\.\d{3})\d+", r"\1", lines))
    return shown


@check
def backup_and_restore() -> list[Any]:
    """A training that breaks off in its third epoch and goes on from the master's file, beside one that does not."""

    class BreakOff(Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.model.optimizer.iterations == 2 * STEPS + 3:
                raise KeyError("broken off")

    whole = plain()
    fit(whole, [])
    backup = keras.callbacks.BackupAndRestore(MINE / "backup", delete_checkpoint=False)
    error = raised(fit, distributed(), [backup, BreakOff()])
    files = sorted(path.name for path in MINE.glob("backup/*"))
    again = distributed()
    twice = {"double_checkpoint": True} if "double_checkpoint" in BACKUP_OPTIONS else {}  # not before Keras 3.7
    epochs = fit(again, [keras.callbacks.BackupAndRestore(MINE / "backup", **twice)]).epoch
    left = list(MINE.glob("backup/*"))
    return [error, files, epochs, float(np.abs(flat(again) - flat(whole)).max()), len(left)]


@check
def disk_full() -> list[Any]:
    """A checkpoint that cannot be written whole: the error of each rank, and whether the one before is as it was."""
    path = FOLDER / "full.keras"
    fit(distributed(), [keras.callbacks.ModelCheckpoint(path)], epochs=1)
    tnt.barrier()
    before = path.read_bytes()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        error = raised(fit, distributed(), [keras.callbacks.ModelCheckpoint(path)], epochs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return [error, path.read_bytes() == before, sorted(p.name for p in FOLDER.glob("*full*"))]


# -------------------------------------------------------------------------------------------------------------- a user's


@check
def every_hook() -> list[Any]:
    epochs, logs, weights, (serial,), (ours,) = like_serial(lambda: [Keep()], epochs=2)
    alike = [[*a[:-1], sorted(a[-1])] for a in serial.seen] == [[*b[:-1], sorted(b[-1])] for b in ours.seen]
    # in the middle of an evaluation a rank knows its own samples only
    logs_of = [[seen[-1] for seen in keep.seen if seen[0] != "on_test_batch_end"] for keep in (serial, ours)]
    numbers = [[value for seen in found for value in seen.values()] for found in logs_of]
    apart = float(np.max(np.abs(np.divide(*numbers) - 1)))
    params = [{**keep.params, "verbose": 0} for keep in (serial, ours)]
    return [epochs, logs, weights, alike, apart, params[0] == params[1], numbers[1]]


@check
def lambdas() -> list[Any]:
    seen: list[str] = []
    given = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(f"epoch {epoch}"),
        on_train_batch_end=lambda batch, logs: seen.append(f"batch {batch}"),
    )
    fit(distributed(), given, epochs=1)
    model = distributed()
    once = callbacks.Callback(keras.callbacks.LambdaCallback(on_train_end=lambda logs: seen.append("once")))
    fit(model, [once], epochs=1)
    return seen


@check
def where_wrapped_ones_run() -> list[Any]:
    once, all_ranks, aggregated = Keep(), Keep(), Keep()
    given = [
        callbacks.Callback(once),
        tnt.callbacks.Callback(all_ranks, run_on_all_ranks=True, aggregate_logs=False),
        callbacks.Callback(aggregated, aggregate_logs=True, run_on_all_ranks=True),
    ]
    before = list(given)
    model = distributed()
    history = keras.callbacks.History()
    result = fit(model, [given, history], epochs=1)
    model.evaluate(x, y, verbose=0, callbacks=[given[0]])
    model.predict(x, verbose=0, callbacks=[given[0]])
    seen = [len(keep.seen) for keep in (once, all_ranks, aggregated)]
    model_seen = [keep.model is model.model for keep in (once, all_ranks)]
    return [seen, model_seen, all_ranks.seen == aggregated.seen, all(map(isinstance, given, [Keep] * 3)), given == before,
            result is history]  # fmt: skip


@check
def wrapping_is_refused() -> list[Any]:
    kinds = keras.callbacks
    decide = [
        kinds.EarlyStopping("loss"), kinds.LearningRateScheduler(lambda n: 0.1), kinds.ReduceLROnPlateau("loss"),
        kinds.TerminateOnNaN(), kinds.SwapEMAWeights(),
    ]  # fmt: skip
    wrap = callbacks.Callback
    return [
        *(raised(wrap, callback, run_on_all_ranks=False) for callback in decide),
        raised(wrap, decide[0]),
        raised(wrap, Keep(), aggregate_logs=True),
        raised(wrap, Keep(), aggregate_logs=True, run_on_all_ranks=False),
        raised(wrap, wrap(Keep()), run_on_all_ranks=True),
        raised(wrap, kinds.BackupAndRestore(MINE)),
        raised(wrap, Keep(), tnt.ParallelStrategy.PIPELINING, aggregate_logs=True, run_on_all_ranks=True),
        raised(wrap, Keep(), tnt.ParallelStrategy.ALL),
        raised(wrap, "Keep"),
        raised(wrap, decide[0], run_on_all_ranks=True),
    ]


# --------------------------------------------------------------------------------------------------------- time history


@check
def time_history() -> list[Any]:
    times = callbacks.TimeHistory(batch_size=12, logging_freq=2)
    fit(distributed(), [times], epochs=2)
    intervals = [[lap["epoch"], lap["steps"]] for lap in times.intervals]
    right = all(lap["samples_per_second"] == lap["steps"] * 12 / lap["seconds"] for lap in [*times.intervals, *times.epochs])
    parts = [sum(lap[key] for lap in times.intervals[:3]) / times.epochs[0][key] for key in ("seconds", "exposed_seconds")]
    bounded = all(0 < lap["exposed_seconds"] < lap["seconds"] for lap in times.epochs)
    return [intervals, right, parts, bounded, [lap["steps"] for lap in times.epochs]]


run(sys.argv[1])
