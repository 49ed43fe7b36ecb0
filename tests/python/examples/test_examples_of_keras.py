"""Examples of keras-io (`tests/examples_of_keras`) give on two ranks what plain Keras gives, or are refused by a sentence."""

from __future__ import annotations

import functools
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from support.front_ends import needs_tf_keras
from support.launch import RANKS, run_alone, run_ranks
from support.outcomes import Outcomes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples_of_keras"
SCRIPT = RANKS / "examples/examples_of_keras.py"
TIMEOUT = 240
TOLERANCE = 1e-4
FLOOR = 0.1  # differences are relative to the largest number of an array, or to this one

NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py") if file.stem != "example")
QUICK = ["collaborative_filtering", "endpoint_layer", "masked_language_model", "mnist_convnet", "vae"]
ONE_RANK = ["mnist_convnet", "vae"]  # where `fit` is Keras' own

EACH_KIND = [  # each kind of step, loss and layer once
    *("bayesian_network", "dcgan", "endpoint_layer", "lstm_seq2seq", "point_clouds", "simclr", "structured_data"),
    *("supervised_contrastive", "text_classification", "trainer_pattern", "vq_vae", "wide_and_deep"),
]
ALL = os.environ.get("ALL_EXAMPLES") == "1"  # a run of all of them takes minutes
JOBS = {
    "quick": (QUICK, {}),
    "keras3": ([name for name in (NAMES if ALL else EACH_KIND) if name not in QUICK], {}),
    "legacy": (NAMES if ALL else QUICK, {"TF_USE_LEGACY_KERAS": "1"}),
}
"""The names of the examples, and the environment of their front end."""

REFUSED = {
    "collaborative_filtering": "depends on the other samples of its batch",
    "point_clouds": "the loss that the layer 'matrix' adds by add_loss couples the samples of a batch",
}
"""What examples are told as they are written; a small change that the sentence proposes makes them train."""


class Runs:
    """Both runs of some examples with one front end, at the same time: plain Keras, and two ranks."""

    def __init__(self, folder: Path, names: list[str], environment: dict[str, str]) -> None:
        folders = [folder / "serial", folder / "ranks"]
        for each in folders:
            each.mkdir()
        one_rank = [f"{name}.one_rank" for name in ONE_RANK if name in names]
        with ThreadPoolExecutor(1) as pool:
            alone = pool.submit(run_alone, SCRIPT, folders[0], "--serial", *names, *one_rank, timeout=TIMEOUT, env=environment)
            run_ranks(2, SCRIPT, folders[1], *names, timeout=TIMEOUT, env=environment).good()
            alone.result().good()
        self.serial, self.ranks = Outcomes(folders[0], 1), Outcomes(folders[1], 2)

    def difference(self, name: str, one_rank: bool = False) -> float:
        """The largest relative difference of results and weights from those of plain Keras."""
        truth = self.serial.arrays(name)
        ours = self.serial.arrays(f"{name}.one_rank") if one_rank else self.ranks.arrays(name)
        ours.pop("refused", None)
        assert ours.keys() == truth.keys()
        return max(_difference(ours[key], truth[key]) for key in truth if truth[key].size)


def _difference(ours: np.ndarray, truth: np.ndarray) -> float:
    assert ours.shape == truth.shape
    assert np.isfinite(truth).all()
    return float(np.max(np.abs(ours - truth)) / max(FLOOR, np.max(np.abs(truth))))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Those of a job, started when one of its tests is the first to ask."""
    return functools.cache(lambda job: Runs(tmp_path_factory.mktemp(job), *JOBS[job]))


def check(runs: Runs, name: str) -> None:
    assert len(set(runs.ranks.digests(name))) == 1  # the same bits on both ranks
    assert runs.difference(name) < TOLERANCE
    if name in ONE_RANK:
        assert runs.difference(name, one_rank=True) < 1e-6
    if name in REFUSED:
        kind, text = runs.ranks.arrays(name)["refused"]
        assert kind == "UnsupportedError"
        assert REFUSED[name] in text
        assert "accept_approximate=True" in text


@pytest.mark.parametrize("name", QUICK)
def test_some_examples(runs, name):
    check(runs("quick"), name)


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS["keras3"][0])
def test_example(runs, name):
    check(runs("keras3"), name)


@pytest.mark.long
@needs_tf_keras
@pytest.mark.parametrize("name", JOBS["legacy"][0])
def test_example_with_legacy_keras(runs, name):
    check(runs("legacy"), name)


def test_the_list_names_all_examples():
    """Each row of the README has a file, and each file a row, with what becomes of the example as it is written."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in rows) == NAMES
    assert {name for name, result in rows if "refused" in result} == set(REFUSED)
