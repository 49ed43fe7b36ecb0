"""`tnt.Model(model, reproducible=8)`: the same bits on any number of ranks, over any transport; and what cannot have them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.findings import Findings, checks_in
from support.launch import RANKS, SLACK
from support.mpirun import needs_mpirun, why_no

SCRIPT = RANKS / "keras/reproducible/reproducible.py"
SECONDS = 400
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
THREADS = {"TF_NUM_INTRAOP_THREADS": "2"}
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SLACK * SECONDS)]  # the last tests wait for all jobs

NO_TRAININGS = ("beside_plain_keras", "how_often_a_training_step_is_traced", "refused")
TRAININGS = [name for name in checks_in(SCRIPT) if name not in NO_TRAININGS]
CONVOLUTIONS = ["cnn_with_batch_normalization_dropout_and_augmentation"]
DENSE = ["mlp_with_adam", "transformer_with_embeddings"]
OF_LEGACY = [*CONVOLUTIONS, "training_step_of_a_users_own", "loss_with_a_mask"]


@pytest.fixture(scope="module")
def jobs():
    """All trainings, two jobs at a time: while one starts, the other computes."""
    wanted = {
        "one": {"ranks": 1},
        "two": {"ranks": 2},
        "eight": {"ranks": 8, "only": DENSE[:1]},
        "over MPI": {"ranks": 2, "only": DENSE, "mpi": True, "env": {"TNT_TRANSPORT": "mpi"}},
        "two nodes": {"ranks": 4, "only": CONVOLUTIONS, "mpi": True, "env": {"ALTERNATING_NODES": "1"}},
        "threads on one": {"ranks": 1, "only": CONVOLUTIONS, "env": THREADS},
        "threads on two": {"ranks": 2, "only": CONVOLUTIONS, "env": THREADS},
        "legacy on one": {"ranks": 1, "only": OF_LEGACY, "env": LEGACY},
        "legacy on two": {"ranks": 2, "only": OF_LEGACY, "env": LEGACY},
    }
    if why_no("mpirun"):
        del wanted["over MPI"], wanted["two nodes"]
    with ThreadPoolExecutor(2) as pool:
        common = {"script": SCRIPT, "timeout": SECONDS, "optimized": True}  # as under mpirun, where it changes the bits
        yield {name: pool.submit(Findings, **common, **options) for name, options in wanted.items()}


@pytest.fixture
def two(jobs):
    return jobs["two"].result()


EQUAL = [
    *(pytest.param("two", "one", name, id=f"two-{name}") for name in TRAININGS),
    *(pytest.param("eight", "one", name, id=f"eight-{name}") for name in DENSE[:1]),
    *(pytest.param("over MPI", "one", name, id=f"two-over-mpi-{name}", marks=needs_mpirun) for name in DENSE),
    *(pytest.param("two nodes", "one", name, id=f"two-nodes-{name}", marks=needs_mpirun) for name in CONVOLUTIONS),
    *(pytest.param("threads on two", "threads on one", name, id=f"two-threads-{name}") for name in CONVOLUTIONS),
    *(pytest.param("legacy on two", "legacy on one", name, id=f"legacy-{name}") for name in OF_LEGACY),
]


@pytest.mark.parametrize(("job", "other", "name"), EQUAL)
def test_every_rank_of_one_job_has_the_bits_of_the_other(jobs, job, other, name):
    first = jobs[other].result()[name][0]
    for rank, bits in enumerate(jobs[job].result()[name]):
        assert bits == first, f"rank {rank}"


@pytest.mark.parametrize("loss", ["mean", "masked"])
def test_the_numbers_are_those_of_one_device(jobs, loss):
    for job in ("one", "two"):
        ours, keras_own = jobs[job].result()["beside_plain_keras"][0][loss]
        assert ours == pytest.approx(keras_own, rel=2e-5)


def test_each_rank_trains_once_in_a_step(two):
    """A weight that counts steps does not count shards."""
    assert two["training_step_of_a_users_own"][0]["steps"] == 2 * 4
    assert two["layer_that_counts_samples"][0]["samples"] == 2 * 75
    assert two["single_batches"][0]["rows"] == [5, 75]


def test_a_step_is_traced_for_one_shard_and_the_last(jobs):
    """Not for each of eight."""
    assert jobs["one"].result()["how_often_a_training_step_is_traced"] == [2]


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
        ("late", "kernel after its optimizer step"),
        ("early", "kernel before its optimizer does"),
        ("unknown", "of which the model does not know"),
        ("counted", "iteration after its optimizer step"),
        ("synchronized", "synchronized BatchNormalization"),
        ("own data", "without tnt_distribute_dataset=False"),
    ],
)
def test_what_is_refused(two, what, sentence):
    for rank in range(2):
        kind, text = two["refused"][rank][what]
        assert kind in ("InvalidArgumentError", "UnsupportedError")
        assert sentence in text
