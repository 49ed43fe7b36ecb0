"""The two halves of the adapter answer the same questions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tarantella

ADAPTER = Path(tarantella.__file__).parent / "keras" / "adapter"

# what is asked only about optimizers that add up gradients, about segments of a model that XLA compiles, about pipelines, and
# about the state of an optimizer that ranks share
OF_KERAS_3 = {
    *("accumulators", "between_updates", "is_update_step", "micro_steps", "variables_of_optimizer"),
    *("layer_calls", "layer_graph", "layer_graph_outputs", "layer_graph_runner", "run_layer_calls"),
    *("added_losses", "loss_and_metrics", "loss_of", "refill", "release", "without_effects"),
    *("Holder", "PlannedSlot", "Slot", "build_slots", "built_variables", "has_averages", "overwrites_weights"),
    *("own_updates", "planned_slots", "share_out", "unshardable_because"),
    *("clipping_of_parts", "clips_by_norm_of_all"),
}


def questions(folder: str) -> dict[str, list[str]]:
    """The public functions and classes of a folder of the adapter, with the names of their arguments."""
    found: dict[str, list[str]] = {}
    for file in (ADAPTER / folder).glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in found, f"{folder} defines {node.name} twice"
                arguments = [*node.args.args, *node.args.kwonlyargs] if isinstance(node, ast.FunctionDef) else []
                found[node.name] = [argument.arg for argument in arguments]
    return found


def test_both_front_ends_answer_the_same():
    of_3, of_2 = questions("keras3"), questions("keras2")
    assert of_3.keys() - of_2.keys() == OF_KERAS_3
    assert of_2 == {name: arguments for name, arguments in of_3.items() if name not in OF_KERAS_3}


def test_what_both_share_is_in_neither():
    assert not questions("common").keys() & {*questions("keras3"), *questions("keras2")}


def test_only_the_adapter_imports_keras():
    package = ADAPTER.parent.parent
    for file in package.rglob("*.py"):
        if ADAPTER in file.parents:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & {"keras", "tf_keras"}, file


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("3.1.1", "too old for this version of Tarantella, which works with {}: pip install '{}'"),
        ("4.0.0.dev1", "not supported: pip install '{1}'"),
    ],
)
def test_an_unsupported_keras_is_refused(tmp_path, version, reason):
    """An older one lacks names that the adapter needs: it would fail in the middle of fit, by an AttributeError."""
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    env = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    env |= {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", "import tarantella.keras.adapter"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    message = f"Keras {version} is {reason.format('3.2 or newer, before 3.16', 'keras>=3.2,<3.16')}"
    assert run.stderr.splitlines()[-1] == f"tarantella.errors.UnsupportedError: {message}", run.stderr
