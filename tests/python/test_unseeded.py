"""A script that sets no seed at all: ranks still begin alike and take parts of the same batches."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS
from tarantella.seeding import agreed_seed

SIZE, SAMPLES, BATCH = 3, 100, 16


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "unseeded.py", forked=False)  # TensorFlow is imported late


def merged(parts):
    """The global batches of each epoch, of the ranks' parts of them."""
    epochs = []
    for of_ranks in zip(*parts, strict=True):
        batches = []
        for of_batch in zip(*of_ranks, strict=True):
            batch = np.empty(sum(map(len, of_batch)), int)
            for rank, part in enumerate(of_batch):
                batch[rank::SIZE] = part
            batches.append(batch.tolist())
        epochs.append(batches)
    return epochs


def test_the_script_has_no_seed(found):
    assert found["no_seed_is_set"] == [True] * SIZE


@pytest.mark.parametrize("name", ["shuffle", "shuffle_once", "two_shuffles", "a_seed_of_the_script"])
def test_parts_make_up_whole_epochs(found, name):
    for batches in merged(found[name]):
        assert sorted(map(len, batches), reverse=True) == [BATCH] * 6 + [SAMPLES % BATCH]
        assert sorted(chain(*batches)) == list(range(SAMPLES))
        assert list(chain(*batches)) != list(range(SAMPLES))


RANDOM = ["sample_from_datasets", "sample_from_datasets_as_before", "rejection_resample", "random_numbers"]


@pytest.mark.parametrize("name", [*RANDOM, "sets_of_text"])
def test_what_is_random_is_the_same_on_all_ranks(found, name):
    first = found[name][0]
    assert found[name] == [first] * SIZE
    assert len(np.unique(first)) > 5


@pytest.mark.parametrize("name", ["shuffle", "two_shuffles", "a_seed_of_the_script"])
def test_epochs_differ(found, name):
    first, second = merged(found[name])
    assert first != second


def test_one_order_for_all_epochs_stays(found):
    first, second = merged(found["shuffle_once"])
    assert first == second


def test_the_seed_is_the_jobs(monkeypatch):
    monkeypatch.setenv("TNT_TOKEN", "one job")
    one, same = agreed_seed(), agreed_seed()
    monkeypatch.setenv("TNT_TOKEN", "another job")
    assert one == same != agreed_seed()
    assert 0 <= one < 2**31


@pytest.mark.parametrize("name", ["weights_before_and_after_fit", "weights_before_and_after_evaluate"])
def test_weights_differ_before_and_agree_after(found, name):
    before, after = zip(*found[name], strict=True)
    assert before[0] != before[1] != before[2]
    assert after[0] == after[1] == after[2]
    assert np.isfinite(after[0]).all()


def test_evaluate_leaves_rank_0s_weights(found):
    before, after = found["weights_before_and_after_evaluate"][0]
    assert before == after


def test_dropout_and_shuffled_arrays(found):
    weights = found["dropout_and_arrays"]
    assert weights[0] == weights[1] == weights[2]
    assert np.isfinite(weights[0]).all()
