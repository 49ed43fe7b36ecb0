"""Layers that pad to the longest sample of a batch, or count its samples, compute on several ranks what they do on one."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

SCRIPT = RANKS / "keras/lengths/lengths.py"
CLOSE = 2e-6


@pytest.fixture(scope="module")
def found():
    """On three ranks, of which some have no sample of the last batches."""
    return Findings(3, SCRIPT, timeout=240, launcher_options=["--log-level", "info"])


@pytest.fixture(scope="module")
def found_on_two():
    return Findings(2, SCRIPT, only=["text", "time_distributed", "in_shards", "in_a_pipeline"])


@pytest.fixture(scope="module")
def found_in_legacy_keras():
    return Findings(2, SCRIPT, env={"TF_USE_LEGACY_KERAS": "1"})


def test_two_ranks(found_on_two):
    assert max(found_on_two["text"]) < CLOSE
    assert max(difference for difference, _ in found_on_two["time_distributed"]) < CLOSE


@pytest.mark.parametrize("name", ["text", "ragged", "in_eager_mode", "with_several_steps_at_once"])
def test_rows_are_padded_as_on_one_device(found, name):
    assert max(found[name]) < CLOSE


def test_rows_are_padded_as_on_one_device_whatever_makes_them_dense(found):
    for of_rank in found["in_other_ways"]:
        assert max(of_rank.values()) < CLOSE, of_rank


def test_the_layer_is_named_once(found):
    for on_rank in found["what_was_logged"]:
        assert len(on_rank) == len(set(on_rank)) == 2, on_rank
        assert "text_vectorization" in on_rank[0]


def test_lengths_that_are_given_are_kept(found):
    assert found["given_lengths_are_kept"] == [[True, 4]] * len(found["given_lengths_are_kept"])


def test_time_distributed_is_as_right_or_wrong_as_on_one_device(found):
    for difference, messages in found["time_distributed"]:
        assert difference < CLOSE
        faults = [message for message in messages if "a fault of Keras" in message]
        assert len(faults) == len({message.split(":")[0] for message in faults})


def test_time_distributed_over_fewer_steps_than_samples(found):
    for error in found["time_distributed_over_too_few_steps"]:
        assert not error or (error[0] == "UnsupportedError" and "TimeDistributed" in error[1]), error


def test_shards_have_the_lengths_of_their_batch(found_on_two):
    for of_rank in found_on_two["in_shards"]:
        assert max(of_rank) < CLOSE


def test_a_pipeline_refuses_by_name(found_on_two):
    for error in found_on_two["in_a_pipeline"]:
        assert error[0] == "UnsupportedError" and "text_vectorization" in error[1], error


def test_parts_have_the_lengths_of_the_whole(found):
    for eagerly, own_eagerly, traced, own_traced in found["parts_of_a_whole_batch"]:
        assert max(eagerly, traced) < CLOSE
        assert min(own_eagerly, own_traced) > 1e-3, "parts with lengths of their own give the same: the check shows nothing"


@needs_tf_keras
@pytest.mark.parametrize("name", ["text", "ragged"])
def test_legacy_keras(found_in_legacy_keras, name):
    assert max(found_in_legacy_keras[name]) < CLOSE
