"""The examples run on two ranks, on little data, and learn something."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from support.launch import run_alone, run_ranks

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LENET = EXAMPLES / "lenet5" / "train.py"


def test_lenet_learns():
    sizes = ("-train", 3200, "-val", 300, "-test", 300)
    result = run_ranks(2, LENET, *sizes, "-e", 3, "--data_dir", "nowhere", timeout=200).good()
    assert "50/50" in result.stdout  # steps of 64 samples on both ranks together
    accuracy = float(re.search(r"accuracy ([\d.]+)$", result.stdout).group(1))
    assert accuracy > 0.8


def test_lenet_takes_mnist_where_it_is(tmp_path):
    rng = np.random.default_rng(0)
    kinds = {"train": 60, "test": 20}
    images = {f"x_{kind}": rng.integers(0, 256, (n, 28, 28), np.uint8) for kind, n in kinds.items()}
    digits = {f"y_{kind}": rng.integers(0, 10, n).astype(np.uint8) for kind, n in kinds.items()}
    np.savez(tmp_path / "mnist.npz", **images, **digits)
    sizes = ("-bs", 12, "-train", 48, "-val", 12, "-test", 20)
    result = run_alone(LENET, *sizes, "--data_dir", tmp_path, timeout=200).good()
    assert "4/4" in result.stdout
    assert "test loss" in result.stdout
