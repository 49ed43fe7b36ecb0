"""`fit` with the checkpoint folder of another process, and with one from which a rank's part disappears. Arguments: both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt
from tarantella.keras.checkpoint import parts

in_use, free = sys.argv[1:]
x = np.ones((16, 4), "float32")
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")


def fails_with(*texts: str, **how: Any) -> None:
    try:
        model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[tnt.callbacks.Checkpoint(**how)])
    except tnt.TarantellaError as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"fit has not failed: {texts}")


fails_with("is in use by process ", folder=in_use)

write = parts.write
if tnt.get_rank() == 1:

    def write_and_lose(folder: Path, rank: int, values: Any) -> None:
        write(folder, rank, values)
        (folder / parts.part_name(rank)).unlink()

    parts.write = write_and_lose
fails_with("the part of rank 1, has not appeared within 5 s (TNT_TIMEOUT)", "removes files", folder=free, sharded=True)
