"""`tnt.Model(model, reproducible=8)`: the same bits on any number of ranks, over any transport; and what cannot have them."""

from __future__ import annotations

import pytest

from support.findings import Findings, checks_in
from support.launch import RANKS
from support.mpirun import needs_mpirun

SCRIPT = RANKS / "reproducible.py"
SECONDS = 400
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
TRAININGS = [name for name in checks_in(SCRIPT) if name not in ("beside_plain_keras", "refused")]
CONVOLUTIONS = ["cnn_with_batch_normalization_dropout_and_augmentation"]
LONG = [*CONVOLUTIONS, "mlp_with_adam", "transformer_with_embeddings"]
OF_LEGACY = [*CONVOLUTIONS, "training_step_of_a_users_own", "loss_with_a_mask"]


@pytest.fixture(scope="module")
def one():
    return Findings(1, SCRIPT, timeout=SECONDS)


@pytest.fixture(scope="module")
def two():
    return Findings(2, SCRIPT, timeout=SECONDS)


@pytest.fixture(scope="module")
def eight():
    return Findings(8, SCRIPT, timeout=SECONDS, only=LONG)


@pytest.fixture(scope="module")
def four_over_mpi():
    return Findings(4, SCRIPT, timeout=SECONDS, only=LONG, mpi=True, env={"TNT_TRANSPORT": "mpi"})


def same(found: Findings, wanted: Findings, name: str) -> None:
    """Every rank of one job has the bits of the other's."""
    first = wanted[name][0]
    for rank, bits in enumerate(found[name]):
        assert bits == first, f"rank {rank}"


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", TRAININGS)
def test_two_ranks_have_the_bits_of_one(one, two, name):
    same(two, one, name)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", LONG)
def test_eight_ranks_have_the_bits_of_one(one, eight, name):
    same(eight, one, name)


@needs_mpirun
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", LONG)
def test_four_ranks_over_mpi_have_the_bits_of_one(one, four_over_mpi, name):
    same(four_over_mpi, one, name)


@pytest.mark.timeout(SECONDS)
def test_more_threads_for_an_operation():
    jobs = [Findings(ranks, SCRIPT, SECONDS, {"TF_NUM_INTRAOP_THREADS": "2"}, only=CONVOLUTIONS) for ranks in (1, 2)]
    same(jobs[1], jobs[0], CONVOLUTIONS[0])


@pytest.mark.timeout(SECONDS)
def test_legacy_keras():
    jobs = [Findings(ranks, SCRIPT, SECONDS, LEGACY, only=OF_LEGACY) for ranks in (1, 2)]
    for name in OF_LEGACY:
        same(jobs[1], jobs[0], name)


@pytest.mark.parametrize("loss", ["mean", "masked"])
def test_the_numbers_are_those_of_one_device(one, two, loss):
    for job in (one, two):
        ours, keras_own = job["beside_plain_keras"][0][loss]
        assert ours == pytest.approx(keras_own, rel=2e-5)


def test_each_rank_trains_once_in_a_step(two):
    """A weight that counts steps does not count shards."""
    assert two["training_step_of_a_users_own"][0]["steps"] == 2 * 4
    assert two["single_batches"][0]["rows"] == [5, 75]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("no power of two", "reproducible is 6: use the number of shards"),
        ("too many ranks", "the number of ranks must divide the number of shards"),
        ("bfloat16", "gradient_dtype"),
        ("hook", "bucket_hook"),
        ("random", "draws random numbers by RandomStandardNormal"),
        ("generator", "draws random numbers by RngReadAndSkip"),
        ("twice", "applies gradients more than once"),
        ("synchronized", "synchronized BatchNormalization"),
        ("own data", "without tnt_distribute_dataset=False"),
    ],
)
def test_what_is_refused(two, what, sentence):
    for rank in range(2):
        kind, text = two["refused"][rank][what]
        assert kind in ("InvalidArgumentError", "UnsupportedError")
        assert sentence in text
