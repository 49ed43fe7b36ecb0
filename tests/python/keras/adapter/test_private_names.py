"""Private names of Keras and TensorFlow are used in the adapter alone, and the installed versions have each of them."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from support import keras_contract
from support.front_ends import needs_tf_keras
from support.keras_contract import CONTRACT, Name
from support.private_names import private_names

PYTHON = Path(__file__).parents[4] / "python"
ADAPTER = PYTHON / "tarantella" / "keras" / "adapter"


def found_in(files: list[Path]) -> dict[str, str]:
    """Each private name that the files use, with a place where they do."""
    uses = [(name, f"{file}:{line}") for file in files for line, name in private_names(file.read_text())]
    return dict(sorted(uses, reverse=True))


@functools.cache
def findings(front_end: str) -> dict[str, Any]:
    legacy = {"TF_USE_LEGACY_KERAS": "1"} if front_end == "legacy Keras" else {}
    env = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    env |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", **legacy}
    return keras_contract.found_with(env)


@pytest.mark.parametrize(
    ("front_end", "name"),
    [
        pytest.param(front_end, name, id=f"{name.full}-{front_end}", marks=[needs_tf_keras] if "legacy" in front_end else [])
        for name in CONTRACT
        for front_end in name.front_ends
    ],
)
def test_a_private_name_is_there(front_end: str, name: Name):
    found = findings(front_end)
    reason = found["missing"].get(name.full)
    assert reason is None, f"{found['versions']} lacks {name.full}, which is needed to {name.needed_to} ({reason})"


def test_private_names_are_used_in_the_adapter_alone():
    files = [file for file in sorted(PYTHON.rglob("*.py")) if ADAPTER not in file.parents]
    found = found_in(files)
    assert not found, "\n".join(f"{place}: {name} belongs in keras/adapter" for name, place in found.items())


def test_every_private_name_of_the_adapter_is_in_the_contract():
    known = {name.name for name in CONTRACT} | {name.full for name in CONTRACT} | {name.owner for name in CONTRACT}
    unknown = {name: place for name, place in found_in(sorted(ADAPTER.rglob("*.py"))).items() if name not in known}
    assert not unknown, "\n".join(f"{place}: {name} has no contract test" for name, place in unknown.items())


def test_every_name_of_the_contract_is_used():
    text = "".join(file.read_text() for file in PYTHON.rglob("*.py"))
    assert [name.full for name in CONTRACT if name.name not in text] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model._flatten_layers()", ["_flatten_layers"]),
        ("model.layers[0]._graph", ["_graph"]),
        ("getattr(layer, '_moments', None)", ["_moments"]),
        ("evaluate(_use_cached=True)", ["_use_cached"]),
        ("tf.__internal__.autograph", ["__internal__"]),
        ("from keras.src.losses.loss import apply_mask", ["keras.src.losses.loss.apply_mask"]),
        ("from tensorflow.python.eager import context\ncontext.context()", ["tensorflow.python.eager.context.context"]),
        ("import tensorflow.python.eager", ["tensorflow.python.eager"]),
        ("_count = 1\ndataset._count", ["_count"]),
        ("self._model, cls._models, super()._model, model.__class__, graph._tnt_last, os._exit(1)", []),
        ("class Group:\n  _size = 1\n  def same(self, other):\n    self._rank = other._rank, other._size, other._n", ["_n"]),
        ("from tarantella import runtime\nruntime._wire", []),
    ],
)
def test_private_names_are_seen(text: str, expected: list[str]):
    assert [name for _, name in private_names(text)] == expected
