"""A training that SIGTERM ends, three times, and that ends with the bits of one that nothing has disturbed: four starts.

Arguments: a folder, and who gets the signal: "launcher", "rank" (the last one alone), "validation" (that rank, while it
validates) or "nobody".
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt

folder, target = Path(sys.argv[1]), sys.argv[2]
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")


class Terminate(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        signal_at = {"launcher": 5, "rank": 30}.get(target, 1 << 30)
        if int(self.model.optimizer.iterations) > signal_at:
            time.sleep(0.2)  # the signal arrives before the training has made the steps of the undisturbed one
        if int(self.model.optimizer.iterations) == signal_at:
            if target == "launcher" and tnt.get_rank() == 0:
                os.kill(int(os.environ["TNT_INTERNAL_LAUNCHER"].partition(":")[0]), signal.SIGTERM)
            if target == "rank" and tnt.get_rank() == tnt.get_size() - 1:
                os.kill(os.getpid(), signal.SIGTERM)

    def on_test_begin(self, logs: Any = None) -> None:
        assert int(self.model.optimizer.iterations) >= 16, "nothing is validated while the training goes back to its position"

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if target == "validation" and batch == 1 and tnt.get_rank() == tnt.get_size() - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if target == "validation" and batch > 1:
            time.sleep(0.5)  # of 50 batches
            assert batch < 20, "the validation goes on"


def train(*callbacks: Any) -> str:
    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    epochs = 8 if target == "nobody" or not callbacks else 10_000
    options = {"validation_data": (x[:50] + 1, x[:50, :1]), "validation_batch_size": 1, "validation_freq": 2}
    history = model.fit(x, x[:, :1], batch_size=8, epochs=epochs, verbose=0, callbacks=list(callbacks), **options)
    weights = b"".join(one.tobytes() for one in model.get_weights())
    return hashlib.sha256(weights + repr(history.history).encode()).hexdigest()


if target == "launcher":
    undisturbed = train()
    if tnt.is_master_rank():
        (folder / "undisturbed").write_text(undisturbed)
result = train(tnt.callbacks.Checkpoint(folder / "checkpoints", every_epochs=10_000, sharded=True), Terminate())
assert target == "nobody", "SIGTERM has not ended fit"
assert result == (folder / "undisturbed").read_text()
print("equal", flush=True)
