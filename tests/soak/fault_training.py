"""A rank of the fault matrix (matrix.py) that trains by Keras: it is faulty while it evaluates, or as it begins to save.

The environment says what is to happen, as for `fault_rank.c`, which has the other phases.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt

MOMENT = 0.05
folder = Path(os.environ["FAULT_FOLDER"])
phase, faulty = os.environ["FAULT_PHASE"], os.environ["FAULT_RANK"]
kind = "none" if os.environ.get("TNT_RESTART", "0") != "0" else os.environ["FAULT_KIND"]
rank, size = int(os.environ["TNT_RANK"]), int(os.environ["TNT_SIZE"])
done: set[str] = set()


def note(what: str, text: str) -> None:
    """Is complete once it has its name."""
    beside = folder / f"{what}.{rank}.part"
    beside.write_text(text)
    beside.rename(folder / what)


def await_note(what: str) -> None:
    while not (folder / what).exists():
        time.sleep(0.002)


def at(here: str) -> None:
    """The moment of the fault, once."""
    if here != phase or kind == "none" or here in done:
        return
    done.add(here)
    note(f"at-{rank}", str(os.getpid()))
    if kind == "signal":
        waits = rank == int(os.environ["FAULT_LATE"]) if faulty == "launcher" else faulty in ("all", str(rank))
        if waits:
            await_note("go")
    elif faulty in ("all", str(rank)):
        for other in range(size):
            await_note(f"at-{other}")
        time.sleep(MOMENT)
        note(f"fault-{rank}", f"{time.monotonic():.6f}")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "fork":
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        elif kind == "raise":
            raise ValueError("what went wrong")
        else:
            sys.exit(0)


class Evaluating(keras.callbacks.Callback):
    """In the middle of the validation."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        at("evaluating")


def train() -> str:
    """Returns a hash of the weights."""
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=12, epochs=2, validation_data=(x, y), verbose=0, shuffle=False, callbacks=[Evaluating()])
    at("saving")
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(tnt.broadcast_object(place), "model.keras"))
        tnt.barrier()
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


try:
    digest = train()
except tnt.TarantellaError as error:
    note(f"error-{rank}", f"{time.monotonic():.6f}\tfit\t{error}")
    raise
if rank == 0:
    note("result", digest)
