"""Details of Horovod's behaviour on three ranks, where means round: factors, sparse sums, process sets, names, sessions."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS


@pytest.fixture(scope="module")
def found():
    return Findings(3, RANKS / "horovod/horovod_details.py", launcher_options=["--horovod"])


@pytest.mark.parametrize("what", ["float16", "averages", "outside", "parts", "graphs"])
def test_results(found, what):
    for on_rank in found[what]:
        assert all(on_rank.values()), on_rank


def test_collectives_of_keras_give_tensors(found):
    assert all(all(on_rank) for on_rank in found["tensors_of_keras"])


def test_an_unknown_process_set_is_an_error(found):
    for *errors, add, size, rank, included, shown in found["unknown_process_set"]:
        assert errors == ["ValueError"] * 10 and add == "InvalidArgumentError"
        assert [size, rank, included] == [None] * 3 and shown == "ProcessSet(process_set_id=None, ranks=[0, 1], mpi_comm=None)"


def test_modules_that_scripts_import(found):
    for *right, service, missing in found["modules"]:
        assert all(right), right
        assert service[0] == "ModuleNotFoundError" and "starts no compute service of tf.data" in service[1]
        assert missing == "AttributeError"


def test_synchronized_normalization_takes_fused(found):
    assert found["synchronized_normalization"] == [[True, True, 0.5, "ValueError"]] * 3


def test_local_and_global_gradients(found):
    assert found["local_and_global"] == [["ValueError", True, "ValueError"]] * 3


def test_what_graphs_of_tensorflow_1_cannot_do_is_refused(found):
    names = ["hvd.join", "BroadcastGlobalVariablesCallback", "MetricAverageCallback", "hvd.elastic", "tnt.broadcast_variables"]
    for on_rank in found["refused_in_graphs"]:
        for name, (kind, text) in zip(names, on_rank, strict=True):
            assert kind == "UnsupportedError" and text.startswith(name) and "graph of TensorFlow 1" in text, text
