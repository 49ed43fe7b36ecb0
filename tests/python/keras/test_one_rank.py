"""On one rank training is Keras' own: nothing is added to a step."""

from __future__ import annotations

import json

import pytest

from support.launch import RANKS, run_alone


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run_alone(RANKS / "keras/one_rank.py", folder).good()
    return json.loads((folder / "found.json").read_text())


def test_the_step_is_the_plain_models(found):
    plain, wrapped = found["nodes"]
    assert plain == wrapped
    assert sum(plain.values()) > 50
    assert not any("Tnt" in kind for kind in plain)


def test_results_have_the_same_bits(found):
    for name in ("weights", "evaluate"):
        plain, wrapped = found[name]
        assert plain == wrapped


def test_nothing_is_reduced(found):
    assert not found["hooks"]
    assert set(found["stats"].values()) == {0.0}


def test_all_of_keras_is_there(found):
    assert "val_loss" in found["validation_split"]
    assert found["train_on_batch"] > 0
