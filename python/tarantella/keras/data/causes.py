"""What may be the reason that ranks have different data, of what their datasets and Python tell."""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella.keras.adapter import datasets, serial_maps
from tarantella.keras.adapter.random_operations import SEEDS

N_TRAITS = 2


def traits(given: Sequence[tf.data.Dataset]) -> NDArray[np.int64]:
    """Numbers that ranks whose data may be alike have in common: how texts are hashed, and the seeds of shuffles."""
    seeds = [datasets.seeds(one) for dataset in given for one in _shuffles(dataset)]
    return np.array([hash("tarantella"), hash(tuple(seeds))], np.int64)


_ELSE = (
    "build the same dataset in the same order on every rank (a seed for the generator of NumPy or Python, sorted names of "
    "files, no data that depends on the rank), or give each rank batches of its own with tnt_distribute_dataset=False"
)

PARALLEL_DRAWS = (
    "a parallel map draws random numbers, which its threads share in any order: leave out num_parallel_calls, use "
    "tf.random.stateless_*, or import tarantella before the dataset is made"
)
_PARALLEL_PYTHON = (
    "a parallel map runs Python: if that draws random numbers or keeps a state, its threads share them in any order: leave out "
    "num_parallel_calls"
)


def advice(given: Sequence[tf.data.Dataset], alike: Sequence[bool]) -> str:
    """What to do about ranks that took parts of different batches.

    Args:
        given: the datasets of which the batches are; none if they were given as tensors.
        alike: whether each of `traits` is the same on all ranks.
    """
    same_hashes, same_seeds = alike
    try:
        found = list(dict.fromkeys(one for dataset in given for one in _in_dataset(dataset)))
    except tf.errors.OpError as error:  # a dataset that TensorFlow cannot write down
        found = [f"what the dataset is made of is not known ({error.message})"]
    if not same_seeds:
        found.append("the dataset is shuffled by another seed on each rank: use the same, as in shuffle(..., seed=1)")
    if not same_hashes:
        found.append(
            "each rank hashes texts in its own way, so list(set(...)) of texts has another order on each: use "
            "sorted(set(...)), or set PYTHONHASHSEED=0"
        )
    return "; ".join([*found, f"otherwise {_ELSE}" if found else _ELSE])


def _in_dataset(dataset: tf.data.Dataset) -> Iterator[str]:
    if not datasets.is_deterministic(dataset):
        yield "the dataset may give its elements in any order: leave out deterministic=False"
    if any(datasets.seeds(one) == (0, 0) for one in _shuffles(dataset)):
        yield "the dataset is shuffled without a seed: use shuffle(..., seed=1)"
    if serial_maps.left(dataset):
        yield PARALLEL_DRAWS
    for one in datasets.everything(dataset):
        if serial_maps.is_parallel(one) and any("PyFunc" in name for name in datasets.operations(one)):
            yield _PARALLEL_PYTHON
        draws = sorted(set(datasets.operations(one)) & SEEDS.keys())
        if draws:
            yield f"a function of the dataset draws random numbers ({draws[0]}): give them seeds, or use tf.random.stateless_*"


def _shuffles(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    return (one for one in datasets.everything(dataset) if datasets.kind(one) == "ShuffleDataset")
