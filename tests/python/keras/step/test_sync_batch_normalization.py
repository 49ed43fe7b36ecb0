"""SyncBatchNormalization computes what BatchNormalization computes of the whole batch, on one device."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS, run_alone

pytestmark = pytest.mark.long

SIZE = 3


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/step/sync_batch_normalization.py", timeout=280)


def test_training_is_serial(found):
    for on_rank in found["training"]:
        local, _ = on_rank.pop("local")
        assert local > 1e-3  # what is compared would show it if statistics were of each rank's own samples
        assert len(on_rank) == 4
        for name, (apart, equal) in on_rank.items():
            assert apart < 2e-5, name
            assert equal, name


def test_ranks_with_data_of_their_own(found):
    for apart, equal in found["own_data"]:
        assert apart < 2e-5
        assert equal


def test_gradients_in_a_loop_of_ones_own(found):
    for on_rank in found["custom_loop"]:
        assert max(on_rank) < 2e-5, on_rank


def test_beside_xla(found):
    for on_rank in found["compiled_by_xla"]:
        assert on_rank[0] < 2e-5


def test_copies_and_files(found):
    assert found["copies_and_files"] == [["True", "BatchNormalization", "True"]] * SIZE


def test_warning_of_statistics_of_parts(found):
    """Once for a model whose batches are large enough; of the whole batch none is needed."""
    for *enough, by_array, by_dataset, sync_by_array, sync_by_dataset in found["small_batches"]:
        for warnings in enough:
            (warning,) = warnings
            assert "Batch Normalization takes its statistics over the samples of each rank" in warning
            assert "tnt.keras.layers.SyncBatchNormalization" in warning
        assert sync_by_array == sync_by_dataset == []
        for warnings in (by_array, by_dataset):
            (warning,) = warnings
            assert warning.startswith("Micro batch size should be at least 16 when using Batch Normalization: 3 ranks share 47")


def test_a_file_loads_without_us(tmp_path):
    file = tmp_path / "model.keras"
    make = f"""
        import keras, numpy as np, tarantella as tnt
        model = keras.Sequential([keras.Input((2,)), tnt.keras.layers.SyncBatchNormalization(momentum=0.5)])
        model.compile("sgd", "mse")
        model.fit(np.eye(2), np.ones((2, 2)), verbose=0)
        model.save({str(file)!r})
        print(model.predict(np.eye(2), verbose=0).tolist())
        """
    load = f"""
        import sys, keras, numpy as np
        model = keras.saving.load_model({str(file)!r})
        assert "tarantella" not in sys.modules
        print(model.predict(np.eye(2), verbose=0).tolist())
        model.fit(np.eye(2), np.ones((2, 2)), verbose=0)
        """
    made, loaded = (run_alone(source, forked=False).good().stdout for source in (make, load))
    assert made == loaded
    assert made.startswith("[[")
