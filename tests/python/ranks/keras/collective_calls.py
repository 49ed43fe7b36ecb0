"""One rank calls a method of `tnt.Model` that all ranks must call: `collective_calls.py METHOD RANK THEN`.

THEN is what the other ranks do: nothing ("end"), wait ("sleep"), or call another method.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from tensorflow import keras

import tarantella as tnt

x, y = np.ones((16, 4), "float32"), np.ones((16, 1), "float32")

METHODS = {
    "evaluate": lambda model: model.evaluate(x, y, batch_size=8, verbose=0),
    "fit": lambda model: model.fit(x, y, batch_size=8, verbose=0),
    "predict": lambda model: model.predict(x, verbose=0),
    "predict_on_batch": lambda model: model.predict_on_batch(x),
    "save": lambda model: model.save(os.path.join(os.getcwd(), "model.keras")),
    "test_on_batch": lambda model: model.test_on_batch(x, y),
    "train_on_batch": lambda model: model.train_on_batch(x, y),
}

if __name__ == "__main__":
    method, rank, then = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    for one in METHODS if then == "all" else ("train_on_batch",):  # as it should be
        METHODS[one](model)
    if tnt.get_rank() == rank:
        METHODS[method](model)
    elif then == "sleep":
        time.sleep(600)
    elif then in METHODS:
        METHODS[then](model)
