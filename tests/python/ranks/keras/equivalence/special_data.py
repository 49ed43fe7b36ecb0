"""Runs that differ in their batches: how they are made, shuffled, weighted and shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import optimizers

import recipes
from recipes import SAMPLES, batched, mlp_data
from special import BATCH, case, train_mlp
from training import Job, Outcome


@case
def static_batch(job: Job) -> Outcome:
    data = batched(mlp_data(), BATCH, drop_remainder=True)
    return train_mlp(job, data=data, by_step=True)[1]


@case
def static_batch_smaller_than_ranks(job: Job) -> Outcome:
    data = batched(mlp_data(24), 3, drop_remainder=True)
    return train_mlp(job, data=data, by_step=True)[1]


@case
def batches_smaller_than_ranks(job: Job) -> Outcome:
    return train_mlp(job, data=batched(mlp_data(25), 3), by_step=True)[1]


@case
def arrays_shuffled(job: Job) -> Outcome:
    x, y = mlp_data()
    return train_mlp(job, data={"x": x, "y": y, "batch_size": BATCH, "shuffle": True})[1]


@case
def shuffled_with_the_global_seed(job: Job) -> Outcome:
    data = tf.data.Dataset.from_tensor_slices(mlp_data()).shuffle(300).batch(BATCH).prefetch(2)
    return train_mlp(job, data=data)[1]


@case
def repeated(job: Job) -> Outcome:
    data = tf.data.Dataset.from_tensor_slices(mlp_data()).shuffle(300, seed=3).repeat().batch(BATCH)
    return train_mlp(job, data=data, steps_per_epoch=7)[1]


@case
def generator(job: Job) -> Outcome:
    x, y = mlp_data()

    def batches() -> Any:
        while True:
            yield from ((x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, SAMPLES, BATCH))

    return train_mlp(job, data=batches(), steps_per_epoch=5)[1]


class Batches(keras.utils.Sequence):
    """The data as Keras' own kind of dataset, in another order in each epoch."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.epoch = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        begin = (index + self.epoch) % 4 * BATCH
        return tuple(a[begin : begin + BATCH] for a in mlp_data())

    def on_epoch_end(self) -> None:
        self.epoch += 1


@case
def py_dataset(job: Job) -> Outcome:
    """Shuffled, and made by two threads."""
    return train_mlp(job, data={"x": Batches(workers=2)})[1]


@case
def class_weight(job: Job) -> Outcome:
    weights = {label: 0.5 + label for label in range(5)}
    return job.train(
        recipes.cnn(),
        batched(recipes.cnn_data(), BATCH),
        optimizer=optimizers.SGD(0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        compiling={"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]},
        class_weight=weights,
    )[1]


@case
def sample_weight(job: Job) -> Outcome:
    x, y = mlp_data()
    weights = recipes.random(9).uniform(0, 3, SAMPLES).astype(np.float32)
    data = {"x": x, "y": y, "sample_weight": weights, "batch_size": BATCH, "shuffle": False}
    return train_mlp(job, data=data, compiling={"weighted_metrics": ["mae"]})[1]


@case
def sample_weight_in_the_dataset(job: Job) -> Outcome:
    weights = recipes.random(9).uniform(0, 3, SAMPLES).astype(np.float32)
    return train_mlp(job, data=batched((*mlp_data(), weights), BATCH))[1]


@case
def own_batches(job: Job, **how: Any) -> Outcome:
    """Ranks with batches of their own, of different sizes: what one device does with all of them together."""
    x, y = mlp_data(240)
    ends = [0, 7, 30, 60] if job.serial else [0, *np.cumsum(share_of(job.size)).tolist()]

    def batches(begin: int, end: int) -> tf.data.Dataset:
        parts = [a.reshape(4, 60, -1)[:, begin:end] for a in (x, y)]
        return tf.data.Dataset.from_tensor_slices(tuple(parts))

    if job.serial:
        return train_mlp(job, data=batches(0, 60), validation_data=batches(0, 60), **how)[1]
    mine = batches(ends[job.rank], ends[job.rank + 1])
    return train_mlp(
        job,
        data=mine,
        validation_data=mine,
        tnt_distribute_dataset=False,
        tnt_distribute_validation_dataset=False,
        **how,
    )[1]


def share_of(ranks: int) -> list[int]:
    """Very different parts of 60 samples."""
    return {2: [7, 53], 3: [7, 23, 30], 4: [1, 6, 23, 30]}[ranks]


# ------------------------------------------------------------------------------------ whatever tf.data can make of it


def _sentences() -> tuple[tf.RaggedTensor, np.ndarray]:
    random = recipes.random(11)
    rows = [random.integers(1, 20, n).tolist() for n in random.integers(1, 9, SAMPLES)]
    return tf.ragged.constant(rows, dtype=tf.int32), np.array([[sum(row) % 7] for row in rows], np.float32)


def _one_by_one() -> tf.data.Dataset:
    x, y = _sentences()
    return tf.data.Dataset.from_generator(
        lambda: ((x[i].numpy(), y[i]) for i in range(SAMPLES)),
        output_signature=(tf.TensorSpec([None], tf.int32), tf.TensorSpec([1], tf.float32)),
    )


def _reader() -> keras.Model:
    """Takes sequences of any length."""
    ids = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(20, 4, embeddings_initializer=keras.initializers.RandomUniform(-1, 1))(ids)
    return keras.Model(ids, keras.layers.Dense(1)(keras.layers.GlobalMaxPooling1D()(embedded)))


def _train_reader(job: Job, data: Any, **how: Any) -> Outcome:
    model, outcome = job.train(_reader(), data, optimizer=optimizers.SGD(0.05), loss="mse", by_step=True, **how)
    outcome.add("evaluate", model.evaluate(data, verbose=0))
    return outcome


def _padded(x: Any, y: Any) -> tuple[Any, Any]:
    return x.to_tensor(), y


@case
def padded_batches(job: Job) -> Outcome:
    return _train_reader(job, _one_by_one().padded_batch(BATCH).prefetch(1))


@case
def ragged_batches(job: Job) -> Outcome:
    data = tf.data.Dataset.from_tensor_slices(_sentences()).ragged_batch(50).map(_padded)
    return _train_reader(job, data)


@case
def bucketed_batches(job: Job) -> Outcome:
    """By length, of other sizes: the last of each bucket has fewer samples than there are ranks, or so."""
    data = _one_by_one().bucket_by_sequence_length(
        lambda x, y: tf.shape(x)[0], bucket_boundaries=[3, 6], bucket_batch_sizes=[16, 31, 8], pad_to_bucket_boundary=False
    )
    return _train_reader(job, data)


@case
def zipped_and_interleaved(job: Job) -> Outcome:
    x, y = mlp_data()
    names = tf.data.Dataset.range(5)
    of_file = lambda i: tf.data.Dataset.from_tensor_slices((x, y)).shard(5, i)  # noqa: E731
    data = names.interleave(of_file, cycle_length=3, num_parallel_calls=2, deterministic=True)
    ones = tf.data.Dataset.from_tensors(1.0).repeat()
    data = tf.data.Dataset.zip((data, ones)).map(lambda pair, one: (pair[0] * one, pair[1])).filter(lambda a, b: a[0] < 1.5)
    return train_mlp(job, data=data.batch(BATCH).take(3), by_step=True)[1]


@case
def maps_before_the_batch(job: Job) -> Outcome:
    """Each rank runs them on its samples alone."""
    x, y = mlp_data()
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(300, seed=2)
    data = data.map(lambda a, b: (a + 1.0, b), num_parallel_calls=tf.data.AUTOTUNE).batch(24).prefetch(tf.data.AUTOTUNE)
    return train_mlp(job, data=data, by_step=True, validation_data=data)[1]


@case
def sparse_input(job: Job) -> Outcome:
    x, y = mlp_data()
    x = np.where(np.abs(x) > 1, x, 0).astype(np.float32)
    model = keras.Sequential([keras.Input((8,), sparse=True), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)])
    data = batched((x, y), BATCH).map(lambda a, b: (tf.sparse.from_dense(a), b))
    return train_mlp(job, model=model, data=data)[1]
