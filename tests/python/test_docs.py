"""The examples in the documentation run, one after another, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.launch import run_alone, run_ranks

DOCS = Path(__file__).resolve().parents[2] / "docs"

END = """
weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
assert np.isfinite(weights).all()
assert (tnt.all_reduce(weights, "max") == tnt.all_reduce(weights, "min")).all(), "ranks have different weights"
print("equal on", size, float(np.abs(weights).sum()))
"""


def source(page: str, least: int = 5) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= least
    return "".join(blocks)


@pytest.mark.parametrize("page", ["checkpoints.md", "custom-loops.md", "keras.md", "training.md"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_page_that_trains(page, ranks):
    page = source(page) + END
    result = run_alone(page) if ranks == 1 else run_ranks(ranks, page, env={"TNT_TIMEOUT": "60"})
    assert f"equal on {ranks}" in result.good().stdout


@pytest.mark.parametrize("ranks", [1, 3])
def test_from_multi_worker_mirrored_strategy(ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the page saves a file
    page = source("multiworker.md", least=1) + "rank, size = tnt.get_rank(), tnt.get_size()\n" + END
    result = run_alone(page) if ranks == 1 else run_ranks(ranks, page, env={"TNT_TIMEOUT": "60"})
    assert f"equal on {ranks}" in result.good().stdout


def test_starting():
    run_alone(source("starting.md", least=2), forked=False).good()


@pytest.mark.parametrize("ranks", [1, 3])
def test_collectives(ranks):
    page = source("collectives.md")
    result = run_alone(page) if ranks == 1 else run_ranks(ranks, page, env={"TNT_TIMEOUT": "60"})
    assert result.good().stdout == f"{ranks} ranks\n"


README = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
keras_model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_lines_of_the_readme(ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they save a file
    page = README + source("../README.md", least=1) + "rank, size = tnt.get_rank(), tnt.get_size()\n" + END
    page += 'keras.models.load_model("model.keras")\n'
    result = run_alone(page) if ranks == 1 else run_ranks(ranks, page, env={"TNT_TIMEOUT": "60"})
    assert f"equal on {ranks}" in result.good().stdout
