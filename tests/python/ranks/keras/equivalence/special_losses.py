"""Runs whose loss is not a plain mean over samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers, losses, optimizers

import recipes
from recipes import SAMPLES, batched, mlp, mlp_data
from special import BATCH, case
from training import Job, Outcome

STEPS = 7


def sequences() -> tuple[np.ndarray, np.ndarray]:
    """Ids, of which 0 is padding: of most samples most, of one sample all."""
    random = recipes.random(7)
    lengths = random.integers(0, STEPS + 1, (SAMPLES, 1))
    lengths[3] = 0
    ids = np.where(np.arange(STEPS) < lengths, random.integers(1, 20, (SAMPLES, STEPS)), 0).astype(np.int32)
    return ids, (ids % 3).astype(np.int32)


def tagger() -> keras.Model:
    """One output for each element of a sequence, with a mask."""
    return keras.Sequential(
        [
            keras.Input((STEPS,), dtype="int32"),
            layers.Embedding(20, 4, mask_zero=True, embeddings_initializer=keras.initializers.RandomUniform(-1, 1)),
            layers.Dense(3),
        ]
    )


def train_tagger(job: Job, loss: Any, data: Any = None, **how: Any) -> tuple[Any, Outcome]:
    model, outcome = job.train(
        tagger(),
        batched(sequences(), BATCH) if data is None else data,
        optimizer=optimizers.SGD(0.5),
        loss=loss,
        compiling={"metrics": ["accuracy"], "weighted_metrics": ["accuracy"], **how},
    )
    outcome.add("evaluate", model.evaluate(batched(sequences(), 50), verbose=0))
    return model, outcome


@case
def masked(job: Job) -> Outcome:
    return train_tagger(job, losses.SparseCategoricalCrossentropy(from_logits=True))[1]


@case
def masked_eagerly(job: Job) -> Outcome:
    return train_tagger(job, losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)[1]


@case
def masked_and_weighted(job: Job) -> Outcome:
    x, y = sequences()
    weights = recipes.random(8).uniform(0, 2, (SAMPLES, STEPS)).astype(np.float32)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    return train_tagger(job, loss, batched((x, y, weights), BATCH))[1]


@case
def masked_sum(job: Job) -> Outcome:
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    return job.train(tagger(), batched(sequences(), BATCH), optimizer=optimizers.SGD(1e-2), loss=loss)[1]


@case
def ignored_class(job: Job) -> Outcome:
    """The loss makes the mask."""
    return train_tagger(job, losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0))[1]


@case
def sum_of_losses(job: Job) -> Outcome:
    loss = losses.MeanSquaredError("sum")
    data = batched(mlp_data(), BATCH)
    model, outcome = job.train(mlp(kernel_regularizer="l2"), data, optimizer=optimizers.SGD(1e-4), loss=loss)
    outcome.add("evaluate", model.evaluate(batched(mlp_data(), 50), verbose=0))
    return outcome


@case
def mean_with_sample_weight(job: Job) -> Outcome:
    x, y = mlp_data()
    weights = recipes.random(9).uniform(0, 3, SAMPLES).astype(np.float32)
    return job.train(
        mlp(),
        batched((x, y, weights), BATCH),
        optimizer=optimizers.SGD(0.05),
        loss=losses.MeanSquaredError("mean_with_sample_weight"),
        compiling={"weighted_metrics": ["mae"]},
        validation_data=(x, y, weights),
    )[1]


@case
def several_reductions(job: Job) -> Outcome:
    """Each output's loss weighs by something else."""
    ids = keras.Input((STEPS,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 4, mask_zero=True, embeddings_initializer=keras.initializers.RandomUniform(-1, 1))(ids)
    tags = layers.Dense(3, name="tags")(embedded)
    number = layers.Dense(1, name="number")(layers.Flatten()(embedded))
    total = layers.Dense(1, name="total")(layers.Flatten()(embedded))
    x, y = sequences()
    label = {"tags": y, "number": x.mean(1, keepdims=True).astype(np.float32), "total": x[:, :1].astype(np.float32)}
    model, outcome = job.train(
        keras.Model(ids, {"tags": tags, "number": number, "total": total}),
        batched((x, label), BATCH),
        optimizer=optimizers.SGD(1e-3),
        loss={
            "tags": losses.SparseCategoricalCrossentropy(from_logits=True),
            "number": losses.MeanSquaredError(),
            "total": losses.MeanAbsoluteError("sum"),
        },
        compiling={
            "loss_weights": {"tags": 2.0, "number": 0.5, "total": 0.1},
            "metrics": {"tags": ["accuracy"], "number": ["mae"]},
        },
    )
    outcome.add("evaluate", model.evaluate(batched((x, label), 50), verbose=0))
    return outcome


@case
def sum_of_own_batches(job: Job) -> Outcome:
    """Each rank has its own batches, of other sizes."""
    x, y = mlp_data(120)
    data = batched((x, y), 20)
    if not job.serial:
        sizes = [12, 8] if job.size == 2 else [10, 6, 4]
        begin = sum(sizes[: job.rank])
        mine = [slice(start + begin, start + begin + sizes[job.rank]) for start in range(0, 120, 20)]
        data = batched((np.concatenate([x[s] for s in mine]), np.concatenate([y[s] for s in mine])), sizes[job.rank])
    how = {} if job.serial else {"tnt_distribute_dataset": False}
    loss = losses.MeanSquaredError("sum")
    return job.train(mlp(), data, optimizer=optimizers.SGD(1e-3), loss=loss, compiling={"metrics": ["mae"]}, **how)[1]


@case
def own_validation(job: Job) -> Outcome:
    """Each rank validates and evaluates data of its own: some have more batches than others, and other sizes."""
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(3, name="all")(hidden), layers.Dense(1, name="first")(hidden)])
    x, y = mlp_data()
    labels = (y, y[:, :1])
    begin, end = (0, SAMPLES) if job.serial else (0, 100) if job.rank == 0 else (100, SAMPLES)
    mine = batched((x[begin:end], (y[begin:end], y[begin:end, :1])), 20 + 11 * job.rank)
    how = {} if job.serial else {"tnt_distribute_validation_dataset": False}
    model, outcome = job.train(
        model, batched((x, labels), BATCH), optimizer=optimizers.SGD(0.05), loss="mse", validation_data=mine, **how
    )
    outcome.add("evaluate", model.evaluate(mine, verbose=0, **({} if job.serial else {"tnt_distribute_dataset": False}))[0])
    # of each output Keras shows a mean over batches, whatever their sizes
    for name in [name for name in outcome.arrays if name.endswith(("all_loss", "first_loss")) and "val_" in name]:
        del outcome.arrays[name]
    return outcome
