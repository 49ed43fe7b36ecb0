"""A run of Weights & Biases without a network, written as for one process: rank 0 logs the numbers of the whole batches."""

import os

import keras
import wandb
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

os.environ.setdefault("WANDB_MODE", "offline")
x = rng.normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse", metrics=["mae"])
with wandb.init(project="training", dir=str(OUT)) as run:
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    for epoch, loss in enumerate(history["loss"]):
        run.log({"epoch": epoch, "loss": loss})
if not PLAIN:
    tnt.barrier()
assert len(list(OUT.glob("wandb/offline-run-*"))) == 1, list(OUT.glob("*/*"))
report(history=history)
