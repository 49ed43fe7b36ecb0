"""examples/torch_trainer: its gradients are those of PyTorch's DistributedDataParallel. Where there is PyTorch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from support.c_programs import EXAMPLES, wheel_library

TRAINER = EXAMPLES / "torch_trainer" / "torch_trainer.py"
PYTHON = os.environ.get("TEST_TORCH_PYTHON", sys.executable)
if sys.executable == PYTHON and importlib.util.find_spec("torch") is None:
    pytest.skip("this Python has no PyTorch: name another in TEST_TORCH_PYTHON", allow_module_level=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_are_those_of_ddp(ranks: int) -> None:
    words = [PYTHON, TRAINER, "--cpu", "--ddp", "--steps", "6", "--batch", "4"]
    launcher = [os.path.join(os.path.dirname(sys.executable), "tarantella"), "-n", str(ranks), "--"] if ranks > 1 else []
    env = {**os.environ, "TARANTELLA_LIBRARY": str(wheel_library()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *words], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == [f"torch/{name}/{ranks} ranks" for name in ("resnet", "gpt")]
    for line in lines:
        assert line["largest_difference"] < 1e-5, line
        assert line["last_loss"] < line["first_loss"], line
        assert line["buckets"] >= 1 and line["device"] == "cpu"
