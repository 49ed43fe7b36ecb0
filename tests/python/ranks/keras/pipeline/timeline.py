"""Trains and evaluates a pipeline of two stages on a rank each; the test reads its timeline."""

from __future__ import annotations

import sys

import keras
import numpy as np
from keras import layers

import tarantella as tnt

BATCH, MICRO_BATCHES, WIDTH, STEPS = 6, 3, 4, 4
SCHEDULE = sys.argv[1]

model = keras.Sequential([keras.Input((WIDTH,)), *(layers.Dense(WIDTH, name=name) for name in "abcd")])
stages = ["c"] if SCHEDULE == "1f1b" else ["b", "c", "d"]
options = {"micro_batches": MICRO_BATCHES if SCHEDULE == "1f1b" else 4, "schedule": SCHEDULE}
pipeline = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, pipeline_stages=stages, **options)
pipeline.compile("sgd", "mse", jit_compile=False)
ones = np.ones((STEPS * BATCH, WIDTH), "f4")
pipeline.fit(ones, ones, batch_size=BATCH, verbose=0, validation_data=(ones, ones))
