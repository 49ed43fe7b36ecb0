"""Sums of sparse gradients over ranks, compared with NumPy's of filled-up tables: each rank knows what all ranks put in."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras.reduction import ops
from tarantella.keras.reduction.sparse import SparseReducer, is_reduced_by_rows

RANK, SIZE = tnt.get_rank(), tnt.get_size()
ROWS = 5000
messages = log_messages()


def slices(rank: int, n: int, rows: int, row: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rank's part of a gradient: n rows, some of them the same, not in order."""
    random = np.random.default_rng(100 * n + rank)
    return random.integers(0, max(1, rows // 3), n) * 3 % rows, random.normal(size=(n, *row)).astype(dtype)


def sum_of_tables(parts: list[tuple[np.ndarray, np.ndarray]], weights: list[float], rows: int) -> np.ndarray:
    """Rank by rank, each rank's rows added up first, in the type they are in: every bit is known."""
    total = np.zeros((rows, *parts[0][1].shape[1:]), parts[0][1].dtype)
    for (indices, values), weight in zip(parts, weights, strict=True):
        table = np.zeros_like(total)
        np.add.at(table, indices, values)
        total += table * total.dtype.type(weight)
    return total


def reduced(
    counts: list[int], rows: int = ROWS, row: tuple[int, ...] = (6,), dtype: str = "float32", graph: bool = True
) -> dict[str, Any]:
    """What the ranks get of so many rows each."""
    parts = [slices(rank, n, rows, row, dtype) for rank, n in enumerate(counts)]
    weights = [0.25 * (rank + 1) for rank in range(SIZE)]
    variable = tf.Variable(np.zeros((rows, *row), dtype))
    reducer = SparseReducer([tf.Variable(0.0), variable])
    indices, values = parts[RANK]

    def step(indices: Any, values: Any) -> Any:
        return reducer.reduce(1, tf.IndexedSlices(values, indices, tf.constant([rows, *row])), weights[RANK])

    run_step = tf.function(step) if graph else step
    once, again = (run_step(tf.constant(indices), tf.constant(values)) for _ in range(2))
    found = tf.convert_to_tensor(once).numpy()
    sparse, dense, gave = reducer.counts(1)
    return {
        "right": found.tobytes() == sum_of_tables(parts, weights, rows).tobytes(),
        "again": once.values.numpy().tobytes() == again.values.numpy().tobytes(),
        "once each": bool(np.all(np.diff(once.indices.numpy()) > 0)),
        "shape": [list(once.shape), once.values.dtype.name, list(found.shape)],
        "way": [sparse, dense],
        "bytes": gave,
        "steps": [reducer.tensor_steps(0), reducer.tensor_steps(1), reducer.stats()["bytes"]],
    }


@check
def sums() -> dict[str, Any]:
    return {
        "few": reduced([10, 20, 5]),
        "few, eager": reduced([10, 20, 5], graph=False),
        "none on one": reduced([10, 0, 5]),
        "none": reduced([0, 0, 0]),
        "just few enough": reduced([900, 900, 900]),  # of distinct rows, what is sent
        "many": reduced([9000, 10, 0]),
        "many, eager": reduced([9000, 10, 0], graph=False),
        "double": reduced([10, 20, 5], dtype="float64"),
        "many double": reduced([9000, 10, 0], dtype="float64"),
        "rows of matrices": reduced([10, 20, 5], row=(3, 2)),
        "rows of one": reduced([10, 20, 5], row=(1,)),
        "rows of numbers": reduced([10, 20, 5], row=()),
    }


@check
def half() -> list[Any]:
    """16 bits are added up in 32 and rounded once."""
    variable = tf.Variable(tf.zeros((ROWS, 8), tf.bfloat16))
    reducer = SparseReducer([variable])
    values = tf.cast(tf.fill([2, 8], 1.0 + RANK / 128), tf.bfloat16)
    total = reducer.reduce(0, tf.IndexedSlices(values, [3, 3], tf.constant([ROWS, 8])), 1.0)
    expected = tf.cast(sum(2 * (1 + rank / 128) for rank in range(SIZE)), tf.bfloat16)
    return [total.values.dtype.name, bool(tf.reduce_all(total.values == expected)), total.indices.numpy().tolist()]


@check
def a_rank_that_does_not_count() -> list[Any]:
    variable = tf.Variable(tf.zeros((ROWS, 2)))
    reducer = SparseReducer([variable])
    values = tf.fill([1, 2], float("nan") if RANK == 0 else 1.0)
    total = reducer.reduce(0, tf.IndexedSlices(values, [RANK], tf.constant([ROWS, 2])), float(RANK > 0))
    return [total.indices.numpy().tolist(), total.values.numpy().tolist()]


@check
def which_are_worthwhile() -> list[bool]:
    def gradient(rows: int, dtype: str = "float32") -> Any:
        return tf.IndexedSlices(tf.zeros((1, 4), dtype), [0], tf.constant([rows, 4]))

    large, small = tf.Variable(tf.zeros((4096, 4))), tf.Variable(tf.zeros((4095, 4)))
    numbers = tf.Variable(tf.zeros((9000, 4), tf.int32))
    return [
        is_reduced_by_rows(gradient(4096), large),
        is_reduced_by_rows(gradient(4095), small),
        is_reduced_by_rows(tf.zeros((4096, 4)), large),
        is_reduced_by_rows(None, large),
        is_reduced_by_rows(gradient(9000, "int32"), numbers),
    ]


@check
def moved_by_a_model() -> dict[str, Any]:
    """An epoch of a model with a large table: bytes of this rank, and that its gradient counts as reduced."""
    model = keras.Sequential(
        [keras.Input((4,), dtype="int32"), layers.Embedding(50_000, 16), layers.Flatten(), layers.Dense(1)]
    )
    wrapped = tnt.Model(model)
    wrapped.compile("sgd", "mse")
    ids = np.random.default_rng(0).integers(0, 50_000, (60, 4))
    wrapped.fit(ids, np.ones((60, 1), np.float32), batch_size=15, verbose=0)
    return wrapped.stats()


PLAIN = {"parallel_strategy": tnt.ParallelStrategy.NONE}


def weights_after(model: Any, optimizer: Any, data: Any, epochs: int, run_eagerly: bool = False, **options: Any) -> list[Any]:
    """Those of the model when it was trained on a dataset of global batches. options: of `tnt.Model`."""
    wrapped = tnt.Model(model, **options)
    wrapped.compile(optimizer, "mse", run_eagerly=run_eagerly)
    wrapped.fit(data, epochs=epochs, verbose=0)
    return [weights.tolist() for weights in model.get_weights()]


def trained(rows: int, optimizer: Any, **options: Any) -> Any:
    """Rows of a table after a training on ids that occur often; in the last batch one rank has no sample."""
    random = np.random.default_rng(0)
    ids, y = random.integers(0, 30, (26, 6)), random.normal(size=(26, 1)).astype(np.float32)
    table = layers.Embedding(rows, 4, embeddings_initializer=keras.initializers.RandomUniform(seed=2))
    dense = layers.Dense(1, kernel_initializer=keras.initializers.RandomUniform(seed=3))
    model = keras.Sequential([keras.Input((6,), dtype="int32"), table, layers.Flatten(), dense])
    data = tf.data.Dataset.from_tensor_slices((ids, y)).batch(12)
    return weights_after(model, optimizer, data, 1, **options)[0][:30]


def about_rows() -> list[str]:
    return [message for message in messages if "rows of an Embedding" in message]


def by_optimizer() -> dict[str, Any]:
    clipped = keras.optimizers.SGD(0.1, global_clipnorm=0.1)
    return {"adam": "adam", "rmsprop": "rmsprop", "sgd": "sgd", "clipped sgd": clipped, "adamw": keras.optimizers.AdamW(0.01)}


@check
def repeated_rows() -> dict[str, list[Any]]:
    """Small and large tables: on all ranks, and as plain Keras."""
    messages.clear()
    found = {}
    for name in by_optimizer():
        for rows in (40, 5000):
            found[f"{name} {rows}"] = [trained(rows, by_optimizer()[name], **how) for how in ({}, PLAIN)]
    return {**found, "said": about_rows()}


def sparse_kernel() -> Any:
    """The step looks up the rows of the kernel that the batch needs, each once."""
    x = keras.Input((9,), sparse=True)
    return keras.Model(x, layers.Dense(1, kernel_initializer=keras.initializers.RandomUniform(seed=2))(x))


def sparse_kernel_used_twice() -> Any:
    x = keras.Input((9,), sparse=True)
    dense = layers.Dense(9, kernel_initializer=keras.initializers.RandomUniform(seed=2))
    return keras.Model(x, keras.ops.sum(dense(x) * dense(x * 0.5), -1, keepdims=True))


def ids_of(x: tf.SparseTensor) -> tf.SparseTensor:
    return tf.SparseTensor(x.indices, x.indices[:, 1], x.dense_shape)


class Both(keras.Model):
    """Looks up rows of one table once each, and rows as often as they occur."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.add_weight(shape=(9, 2), initializer=keras.initializers.RandomUniform(seed=2))

    def call(self, x: Any) -> Any:
        once = tf.nn.embedding_lookup_sparse(self.table.value, ids_of(x), x, combiner="sum")
        often = tf.gather(self.table.value, tf.where(tf.sparse.to_dense(x)[:, :4] > 0, [[0, 1, 2, 3]], [[4, 5, 4, 5]]))
        return tf.reduce_sum(once, 1, True) * 2 + tf.reduce_sum(often, [1, 2])[:, tf.newaxis]


def trained_on_sparse(make: Any, optimizer: Any, **options: Any) -> list[Any]:
    """The weights after a training on a sparse input; in the last batch one rank has no sample."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(26, 9)).astype(np.float32), random.normal(size=(26, 1)).astype(np.float32)
    x[:, 1:][x[:, 1:] < 0.3] = 0
    data = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(x), y)).batch(12)
    return weights_after(make(), optimizer, data, 2, **options)


@check
def rows_looked_up_once() -> dict[str, list[Any]]:
    """On all ranks, and as plain Keras."""
    messages.clear()
    found = {}
    for name in by_optimizer():
        for make in (sparse_kernel, sparse_kernel_used_twice, Both):
            found[f"{name} {make.__name__}"] = [trained_on_sparse(make, by_optimizer()[name], **how) for how in ({}, PLAIN)]
    return {**found, "said": about_rows()}


LENGTH = 4  # that of a rank's batch, too
FAR = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))  # from each position to each
COMMON = {
    "positions": lambda layer, x: keras.ops.arange(keras.ops.shape(x)[1]),
    "constant": lambda layer, x: np.array([3, 0, 1, 2]),
    "one": lambda layer, x: tf.constant([1]),
    "by distance": lambda layer, x: tf.cast(FAR[:, :3].T, tf.int32),
    "from outside": lambda layer, x: layer.from_outside[:3, :4],
    "by a variable": lambda layer, x: layer.index,
    "computed": lambda layer, x: tf.abs(tf.range(tf.shape(x)[1]) - 1) % 3,
}
OF_EACH_SAMPLE = {
    "repeated": lambda layer, x: keras.ops.tile(keras.ops.arange(LENGTH)[None], [keras.ops.shape(x)[0], 1]),
    "broadcast": lambda layer, x: tf.broadcast_to(tf.range(LENGTH), tf.shape(x)),
    "counted": lambda layer, x: tf.cumsum(tf.ones_like(x, tf.int32), 1) - 1,
    "of the data": lambda layer, x: tf.cast(tf.abs(x) * 3, tf.int32) % 9,
}


class Looked(layers.Layer):
    """Scales its input by what it looks up."""

    def __init__(self, indices: Any) -> None:
        super().__init__()
        self._indices = indices
        self.from_outside = tf.constant(np.resize(FAR, (16, 16)))  # too large for a copy in the graph

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(9, 1), initializer="ones")
        self.index = self.add_weight(shape=(3, LENGTH), dtype="int32", initializer="ones", trainable=False)

    def call(self, x: Any) -> Any:
        found = keras.ops.take(self.table, self._indices(self, x), axis=0)[..., 0]
        is_matrix = len(found.shape) == 2 and found.shape[0] == 3
        return x @ keras.ops.transpose(found) if is_matrix else x * found


def trained_on_lookups(indices: Any, samples: int, optimizer: Any, **options: Any) -> list[Any]:
    keras.utils.set_random_seed(4)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(samples, LENGTH)).astype(np.float32), random.normal(size=(samples, 1)).astype(np.float32)
    model = keras.Sequential([keras.Input((LENGTH,)), Looked(indices), layers.Dense(1)])
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(SIZE * LENGTH, drop_remainder=samples % (SIZE * LENGTH) == 0)
    return weights_after(model, optimizer, data, 3, **options)


@check
def rows_common_to_samples() -> dict[str, list[Any]]:
    """On all ranks, and as plain Keras: lookups of the same rows for all samples, and for each of them."""
    messages.clear()
    found = {}
    for name, indices in (COMMON | OF_EACH_SAMPLE).items():
        for samples in (2 * SIZE * LENGTH, 2 * SIZE * LENGTH + 2):  # the size of a batch is known in the trace, or not
            for optimizer in ("adam", "clipped sgd") if name == "positions" else ("adam",):
                ours, expected = (trained_on_lookups(indices, samples, by_optimizer()[optimizer], **how) for how in ({}, PLAIN))
                found[f"{name}, {samples}, {optimizer}"] = [ours, expected]
    return {**found, "said": about_rows()}


@check
def rows_looked_up_eagerly() -> list[str]:
    """What is said of it, with Adam and with an optimizer that needs the sums alone."""
    messages.clear()
    for optimizer in ("sgd", "adam"):
        trained_on_sparse(sparse_kernel, optimizer, run_eagerly=True)
    return [message for message in messages if "run_eagerly" in message]


@check
def rows_looked_up_once_in_shards() -> list[str]:
    messages.clear()
    trained_on_sparse(sparse_kernel, "adam", reproducible=4)
    return about_rows()


@check
def repeated_rows_in_shards() -> list[str]:
    messages.clear()
    trained(5000, "adam", reproducible=4)
    trained(5000, "adam", reproducible=4)
    return about_rows()


@check
def a_row_that_is_not_there() -> list[str]:
    """The last check: it ends the communication of the others."""
    reducer = SparseReducer([tf.Variable(tf.zeros((ROWS, 2)))])
    row = ROWS if RANK == 1 else 0

    def step() -> Any:
        if RANK == 1:
            with ops.translated_errors():
                return reducer.reduce(0, tf.IndexedSlices(tf.ones((1, 2)), [row], tf.constant([ROWS, 2])), 1.0)
        return None

    return raised(step)


run(*sys.argv[1:])
