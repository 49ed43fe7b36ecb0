"""What the scripts of this folder share: a model, plain or on all ranks, and the numbers that must be the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt

PLAIN = "CLIENT_PLAIN" in os.environ  # one process without tnt.Model
OUT = Path(os.environ["CLIENT_OUT"])  # the folder of this run, empty when it begins

keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


def wrap(model: Any) -> Any:
    """The model as this run trains it."""
    return model if PLAIN else tnt.Model(model)


def report(**values: Any) -> None:
    """Keeps numbers, of this rank, for the comparison: structures of numbers and arrays."""
    flat = [float(number) for value in tf.nest.flatten(values) for number in np.ravel(np.asarray(value, np.float64))]
    (OUT / f"{0 if PLAIN else tnt.get_rank()}.json").write_text(json.dumps(flat))
