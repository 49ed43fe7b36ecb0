"""Trains a large model by Adam in processes whose memory is limited: LIMIT, in bytes for each parameter of the whole model."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

import tarantella as tnt

WIDTH, LAYERS = 2048, 8


def limit_memory(more: int) -> None:
    """This process may get so many bytes of writable memory more than it has."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    now = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))


ones = np.ones((16, WIDTH), "f4")
small = tnt.Model(keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(8)]))
small.compile("adam", "mse", jit_compile=False)
small.fit(ones[:, :8], ones[:, :8], verbose=0)  # threads, graphs and connections are there before the limit

parameters = LAYERS * WIDTH * (WIDTH + 1)
limit_memory(int(sys.argv[1]) * parameters)
model = keras.Sequential([keras.Input((WIDTH,)), *(layers.Dense(WIDTH, name=f"layer{i}") for i in range(LAYERS))])
if tnt.get_size() > 1:
    model = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, micro_batches=8, pipeline_stages=["layer2", "layer4", "layer6"])
model.compile(keras.optimizers.Adam(1e-5), "mse", jit_compile=False)
history = model.fit(ones, ones, batch_size=16, epochs=2, verbose=0)
assert model.count_params() == parameters
print("trained, loss", history.history["loss"][-1])
