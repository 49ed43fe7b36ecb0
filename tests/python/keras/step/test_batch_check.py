"""The sentence about ranks that took parts of different batches: whose differs, in what, and what may be the reason."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras.data import causes, split
from tarantella.keras.step.batch_check import sentence

NAMES = [split.SAMPLES, "x", "y"]
USUAL = [8, 11, 12, 5, 6]


def said(*of_ranks, given=()):
    return sentence(NAMES, np.array(of_ranks), given)


@pytest.mark.parametrize(
    ("of_ranks", "words"),
    [
        ([USUAL, [8, 99, 12, 5, 6], USUAL], "rank 1 has another than the others, in x. "),
        ([[8, 98, 97, 5, 6], USUAL, USUAL], "rank 0 has another than the others, in x and y. "),
        ([USUAL, [8, 11, 98, 5, 6], USUAL, [8, 11, 99, 5, 6]], "ranks 1 and 3 have another than the others, in y. "),
        ([USUAL, [8, 99, 12, 5, 6]], "those of ranks 0 and 1 differ, in x. "),
        ([USUAL, USUAL, [8, 99, 12, 5, 6], [8, 99, 12, 5, 6]], "there is none that most ranks have, in x. "),
        (
            [[7, 11, 12, 5, 6], USUAL, USUAL],
            "rank 0 has another than the others, in the number of samples: 7 on rank 0, 8 on rank 1. ",
        ),
        ([[7, 98, 12, 5, 6], USUAL, USUAL], "in x, and in the number of samples: 7 on rank 0, 8 on rank 1. "),
    ],
)
def test_the_odd_one_out(of_ranks, words):
    assert words in said(*of_ranks)


def test_sets_are_blamed_only_if_ranks_hash_differently():
    odd = [8, 99, 12, 5, 6]
    assert "sorted(set" not in said(USUAL, odd, USUAL)
    assert "PYTHONHASHSEED" in said(USUAL, [8, 99, 12, 7, 6], USUAL)


def test_shuffles_are_blamed_only_if_their_seeds_differ():
    assert "shuffled" not in said(USUAL, [8, 99, 12, 5, 6], USUAL)
    assert "shuffled by another seed" in said(USUAL, [8, 99, 12, 5, 7], USUAL)


DATA = tf.data.Dataset.range(8)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (DATA.map(lambda n: n, num_parallel_calls=2, deterministic=False), "deterministic=False"),
        (DATA.shuffle(8), "shuffled without a seed"),
        (DATA.map(lambda n: tf.random.uniform([])), "draws random numbers (RandomUniform)"),
        (
            DATA.map(lambda n: tf.random.uniform([]), num_parallel_calls=2),
            "share in any order: leave out num_parallel_calls, use",
        ),
        (
            DATA.map(lambda n: tf.numpy_function(abs, [n], tf.int64), num_parallel_calls=2),
            "runs Python: if that draws random numbers or keeps a state, its threads share them in any order",
        ),
    ],
)
def test_advice_fits_the_dataset(dataset, words):
    given = [dataset.batch(2)]
    assert words in causes.advice(given, alike=[True, True])
    assert words not in causes.advice([DATA.shuffle(8, seed=3).map(lambda n: n).batch(2)], alike=[True, True])
