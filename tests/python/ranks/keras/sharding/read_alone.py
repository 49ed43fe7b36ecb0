"""One rank reads the state of a sharded optimizer, which all ranks must read: `read_alone.py WHERE`.

WHERE is "callback", "script" (the other rank ends), or "wrapped": in a callback that runs on the master alone.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

import tarantella as tnt
from sharding_recipes import data, inputs, tiny

WHERE = sys.argv[1]


def read(model: Any) -> list[Any]:
    return [np.asarray(v) for v in model.optimizer.variables]


class Watching(keras.callbacks.Callback):
    """Looks at the optimizer, on the master."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if tnt.is_master_rank():
            shapes = [v.shape for v in read(self.model)]
            print(f"epoch {epoch}: {len(shapes)} variables")


model = tnt.Model(tiny(), shard_optimizer=True)
model.compile(keras.optimizers.Adam(0.01), "mse")
watching = {"callback": [Watching()], "wrapped": [tnt.callbacks.Callback(Watching())]}.get(WHERE, [])
model.fit(data(inputs), verbose=0, callbacks=watching)
if WHERE == "script" and tnt.is_master_rank():
    read(model)
