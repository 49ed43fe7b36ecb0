"""Trains and evaluates a pipeline of some stages, in some micro-batches; the test reads its timeline."""

from __future__ import annotations

import sys

import keras
import numpy as np
from keras import layers

import tarantella as tnt

BATCH, WIDTH, STEPS = 6, 4, 4
CUTS = {2: ["c"], 4: ["b", "c", "d"]}  # before these layers, for so many stages
name, stages, micro_batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

model = keras.Sequential([keras.Input((WIDTH,)), *(layers.Dense(WIDTH, name=layer) for layer in "abcd")])
options = {"pipeline_stages": CUTS[stages], "micro_batches": micro_batches, "schedule": name}
pipeline = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, **options)
pipeline.compile("sgd", "mse", jit_compile=False)
ones = np.ones((STEPS * BATCH, WIDTH), "f4")
pipeline.fit(ones, ones, batch_size=BATCH, verbose=0, validation_data=(ones, ones))
