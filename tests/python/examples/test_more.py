"""The scripts of examples/more give on two ranks what plain Keras gives, and what they print as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.launch import RANKS, run_alone, run_ranks

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/more"
SCRIPT = RANKS / "examples/more_examples.py"
NAMES = ("finetune", "gan", "pipeline", "table", "texts", "rates")


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Of plain Keras, and of two ranks: names and numbers for each script."""
    folders = [tmp_path_factory.mktemp(name) for name in ("serial", "ranks")]
    with ThreadPoolExecutor(1) as pool:
        serial = pool.submit(run_alone, SCRIPT, folders[0], "--serial", *NAMES, timeout=100)
        run_ranks(2, SCRIPT, folders[1], *NAMES, timeout=100).good()
        serial.result().good()
    serial_file, *files = (folder / f"{rank}.json" for folder, rank in zip((*folders, folders[1]), (0, 0, 1), strict=True))
    assert files[0].read_text() == files[1].read_text(), "ranks differ"
    return json.loads(serial_file.read_text()), json.loads(files[0].read_text())


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_are_plain_keras(losses, name: str) -> None:
    truth, ours = (each[name] for each in losses)
    assert truth.keys() == ours.keys() and truth
    for what, values in truth.items():
        assert ours[what] == pytest.approx(values, rel=1e-3, abs=1e-4), (what, ours, truth)


def test_damaged_weights_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "base.weights.h5").write_bytes(b"no weights")
    result = run_alone(EXAMPLE / "finetune.py", "--weights", tmp_path / "base.weights.h5", timeout=60)
    assert result.code == 1 and "Traceback" not in result.stderr, result.said
    assert "base.weights.h5 is damaged, or has weights of another network: " in result.stderr


def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    """Trials one by one, as in an array, and then the search as a whole, which does not train again."""
    words = ("--trials", 2, "--epochs", 1, "--between", 1e-3, 0.1, "--folder", tmp_path)
    first = run_ranks(2, EXAMPLE / "rates.py", *words, "--only", 1, timeout=60).good()
    assert re.match(r"trial 1: rate 0.1, loss \S+\nbest: rate 0.1\n$", first.stdout)
    (tmp_path / "trial1.json").write_text('{"rate": 0.1, "loss": 0.0}')  # a loss that no training has
    again = run_ranks(1, EXAMPLE / "rates.py", *words, timeout=60).good()
    assert re.match(r"trial 0: rate 0.001, loss \S+\ntrial 1: rate 0.1, loss 0.0000\nbest: rate 0.1\n$", again.stdout)


def test_the_job_of_slurm_runs_its_trial(tmp_path: Path) -> None:
    """With an srun that says what it was told to run."""
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    done = subprocess.run(["bash", EXAMPLE / "rates.sbatch"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "--mpi=pmix python rates.py --trials 8 --only 3 --folder trials\n", done
