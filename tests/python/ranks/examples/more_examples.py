"""Trains the scripts of examples/more with little data, in plain Keras or on all ranks: FOLDER [--serial] NAME..."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples/more"))

import finetune
import gan
import rates
import table
import tensorflow as tf
import texts

import pipeline
import tarantella as tnt

folder, *names = sys.argv[1:]
serial = "--serial" in names
wrap = (lambda model: model) if serial else tnt.Model


def fine_tune() -> dict[str, list[float]]:
    """From weights that the first rank makes."""
    weights = Path(folder, "base.weights.h5")
    if serial or tnt.is_master_rank():
        finetune.pretrain(weights, 1, 64)
    if not serial:
        tnt.barrier()
    tf.keras.utils.set_random_seed(1)
    return finetune.train(wrap, weights, (1, 2), 140)[1]


TRAIN = {
    "finetune": fine_tune,
    "gan": lambda: gan.train(wrap, 2, 150)[1],
    "pipeline": lambda: pipeline.train(wrap if serial else pipeline.pipeline, 2, 150, 2, 32)[1],
    "table": lambda: table.train(wrap, 1_000_000, 2, 400)[1],
    "texts": lambda: texts.train(wrap, 2, 300)[1],
    "rates": lambda: {"loss": list(rates.search(wrap, {0: 0.01, 1: 0.1}, 2).values())},
}

found = {}
for name in names:
    if name in TRAIN:
        tf.keras.utils.set_random_seed(1)
        found[name] = TRAIN[name]()
Path(folder, f"{tnt.get_rank()}.json").write_text(json.dumps(found))
