"""What `tools/matrix` runs in each of its environments: does this TensorFlow with this Keras train as it should?

Every private name of the adapter, and trainings on two ranks beside plain Keras. TF_USE_LEGACY_KERAS says which front end it
is. The same rank scripts as in tests/python are used, a few cases of each, so that a cell takes a minute or two.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import keras_contract
from support.catalogue import VERSIONS, VERSIONS_KERAS_3, VERSIONS_LEGACY
from support.findings import Findings
from support.launch import RANKS, run_ranks
from support.outcomes import Jobs

SIZE = 2
CLOSE = 2e-6
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
TRAININGS = [*VERSIONS, *(VERSIONS_LEGACY if LEGACY else VERSIONS_KERAS_3)]
needs_keras_3 = pytest.mark.skipif(LEGACY, reason="legacy Keras has a test of its own")
needs_legacy = pytest.mark.skipif(not LEGACY, reason="for legacy Keras")


def test_private_names():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    found = keras_contract.found_with(environment)
    print(found["versions"])
    assert found["missing"] == {}


# ------------------------------------------------------------------------------------------------------ trainings


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    jobs = Jobs(tmp_path_factory.mktemp("trained"), lambda size: TRAININGS if size == SIZE else [])
    yield jobs
    jobs.close()


@pytest.mark.parametrize("name", TRAININGS)
def test_ranks_train_as_plain_keras_does(trained, name):
    trained.same_bits(SIZE, name)
    trained.same_losses_and_metrics(SIZE, name)
    trained.same_weights(SIZE, name)


# ---------------------------------------------------------------------------------------------- callbacks, files


@pytest.fixture(scope="module")
def callbacks():
    only = ["early_stopping", "csv_and_checkpoints", "backup_and_restore", "every_hook"]
    return Findings(SIZE, RANKS / "keras/callbacks.py", timeout=240, only=only)


@needs_keras_3
def test_early_stopping(callbacks):
    for epochs, logs, weights, *alike in callbacks["early_stopping"]:
        assert epochs == 2
        assert max(logs, weights) < CLOSE
        assert all(alike)


@needs_keras_3
def test_files_of_callbacks(callbacks):
    (serial, ours, logs, weights, _), *others = callbacks["csv_and_checkpoints"]
    assert serial == ours
    assert max(logs, weights) < CLOSE
    assert [files for _, files in others] == [[]] * (SIZE - 1)


@needs_keras_3
def test_a_backup_is_restored(callbacks):
    for _, _, epochs, apart, left in callbacks["backup_and_restore"]:
        assert epochs == [2, 3]
        assert apart < CLOSE
        assert left == 0
    assert callbacks["backup_and_restore"][0][1] == ["latest.weights.h5", "training_metadata.json"]


@needs_keras_3
def test_a_users_callback(callbacks):
    for epochs, logs, weights, same_calls, apart, *_ in callbacks["every_hook"]:
        assert epochs == 2
        assert same_calls
        assert max(logs, weights, apart) < CLOSE


@pytest.fixture(scope="module")
def saved():
    if LEGACY:
        return Findings(SIZE, RANKS / "keras/adapter/legacy_keras.py", only=["saved_and_loaded", "weights_there_and_back"])
    only = ["save", "save_as_h5", "training_goes_on_from_a_file", "weights_there_and_back"]
    return Findings(SIZE, RANKS / "keras/saving.py", only=only)


@needs_keras_3
def test_saved_models(saved):
    for written, replaced, is_plain, names_us, same_predictions, same_optimizer in saved["save"]:
        assert written == ["model.keras"]
        assert (replaced, is_plain, names_us, same_predictions, same_optimizer) == (True, True, False, True, True)
    assert saved["save_as_h5"] == [["model.h5"]] * SIZE
    first, second = saved["training_goes_on_from_a_file"]
    assert first == second
    assert saved["weights_there_and_back"] == [[True, True, True]] * SIZE


@needs_legacy
def test_saved_models_of_legacy_keras(saved):
    for *formats, expected, left_over in saved["saved_and_loaded"]:
        assert [names for names, *_ in formats] == [["model.keras"], ["model.h5"], ["folder"]]
        assert all(is_plain and same_predictions for _, is_plain, same_predictions, _ in formats)
        for *_, trained_on in formats[:2]:
            np.testing.assert_allclose(trained_on, expected, rtol=1e-6)
        assert left_over == []
    checkpoint = ["of_tensorflow.data-00000-of-00001", "of_tensorflow.index"]
    assert saved["weights_there_and_back"] == [[[["some.weights.h5"], True], [checkpoint, True], []]] * SIZE


# ------------------------------------------------------------------------------------- checkpoints, reproducible


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What whole trainings came to, and those that broke off and went on."""
    folder, cases = tmp_path_factory.mktemp("checkpoints"), ["shuffled", "arrays"]
    results = {}
    for mode in ("begin", "continue"):
        run_ranks(SIZE, RANKS / "keras/checkpoint/checkpoints.py", mode, folder, *cases, timeout=240).good()
        results[mode] = json.loads(Path(folder, f"{mode}.json").read_text())
    shutil.rmtree(folder)
    return results["begin"], results["continue"]


@pytest.mark.parametrize("name", ["shuffled", "arrays"])
def test_a_training_goes_on_from_its_checkpoint(checkpoints, name):
    whole, went_on = (found[name] for found in checkpoints)
    for key in ("epochs", "iterations", "steps"):
        assert went_on[key] == whole[key]
    for ours, truth in zip(went_on["weights"], whole["weights"], strict=True):
        np.testing.assert_allclose(ours, truth, rtol=0, atol=CLOSE)


def test_reproducible_is_the_same_on_one_rank_and_two():
    name = "training_step_of_a_users_own" if LEGACY else "mlp_with_adam"
    one, two = (Findings(size, RANKS / "keras/reproducible/reproducible.py", timeout=240, only=[name])[name] for size in (1, 2))
    assert two == [one[0], one[0]]
