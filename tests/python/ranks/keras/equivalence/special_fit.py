"""Runs that differ in what fit and evaluate are asked for."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import optimizers

import recipes
from recipes import batched, mlp, mlp_data
from special import BATCH, case, train_mlp
from training import Job, Outcome


@case
def validation(job: Job) -> Outcome:
    x, y = recipes.embedding_data()
    model, outcome = job.train(
        recipes.embedding(),
        batched((x, y), BATCH),
        optimizer=optimizers.Adam(5e-3),
        loss="binary_crossentropy",
        compiling={"metrics": ["accuracy", "AUC", keras.metrics.Precision()]},
        validation_data=(x[::-1][:100], y[:100]),
        validation_batch_size=33,
    )
    outcome.add("evaluate", model.evaluate(x, y, batch_size=50, verbose=0))
    outcome.add("evaluate as dict", model.evaluate(batched((x, y), 7), steps=3, return_dict=True, verbose=0))
    outcome.add("predict", model.predict(x, batch_size=50, verbose=0))
    return outcome


@case
def stopped_early(job: Job) -> Outcome:
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_mae", patience=0, factor=0.5, min_delta=0.5)
    # what validates is noise: the loss on it rises soon
    x, y = mlp_data(100, seed=5)
    return train_mlp(
        job,
        optimizer=optimizers.Adam(5e-2),
        compiling={"metrics": ["mae"]},
        validation_data=batched((x, y[::-1].copy()), 30),
        callbacks=[stop, plateau],
        epochs=8,
    )[1]


@case
def validation_now_and_then(job: Job) -> Outcome:
    held_out = batched(mlp_data(90, seed=3), 20).repeat()
    return train_mlp(job, validation_data=held_out, validation_steps=3, validation_freq=2, epochs=4)[1]


@case
def steps_per_execution(job: Job) -> Outcome:
    return train_mlp(job, compiling={"steps_per_execution": 3})[1]


@case
def run_eagerly(job: Job) -> Outcome:
    return train_mlp(job, compiling={"metrics": ["mae"], "run_eagerly": True})[1]


@case
def several_fits(job: Job) -> Outcome:
    """Fitted again as it is, then compiled with another optimizer, loss and metric, and with a layer that learns no more."""
    model, outcome = train_mlp(job)
    job.fit(model, batched(mlp_data(130, seed=2), 50), outcome, "again/", epochs=4, initial_epoch=2)
    model.layers[0].trainable = False
    model.compile(optimizer=optimizers.RMSprop(1e-3), loss="mae", metrics=["mse"])
    job.fit(model, batched(mlp_data(130, seed=2), 50), outcome, "compiled again/", epochs=2)
    outcome.add("evaluate", model.evaluate(batched(mlp_data(), BATCH), verbose=0))
    return outcome


@case
def validation_split(job: Job) -> Outcome:
    x, y = mlp_data()
    return train_mlp(job, data={"x": x, "y": y, "batch_size": BATCH, "validation_split": 0.3, "sample_weight": x[:, 0] ** 2})[1]


@case
def micro_batches(job: Job) -> Outcome:
    """How many samples each rank has is given, of a dataset without a batch, and of arrays."""
    data = tf.data.Dataset.from_tensor_slices(mlp_data())
    if job.serial:
        return train_mlp(job, data=data.batch(60), validation_data=batched(mlp_data(90, seed=3), 30))[1]
    n = job.size
    _, outcome = train_mlp(
        job,
        data=data,
        validation_data=batched(mlp_data(90, seed=3), 30),
        tnt_micro_batch_size=60 // n,
        tnt_validation_micro_batch_size=30 // n,
    )
    return outcome


@case
def single_batches(job: Job) -> Outcome:
    """Steps, tests and predictions one batch at a time, with batches of fewer samples than ranks."""
    model = job.wrap(mlp())
    model.compile(optimizer=optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    outcome = Outcome()
    x, y = mlp_data()
    losses = [model.train_on_batch(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    weighted = [model.train_on_batch(x[:9], y[:9], sample_weight=np.arange(9.0)), model.train_on_batch(x[:1], y[:1])]
    outcome.add("train", np.array([*losses, *weighted]))
    outcome.add("train as dict", model.train_on_batch(x[:50], y[:50], return_dict=True))
    outcome.add("test", np.array([model.test_on_batch(x[:n], y[:n]) for n in (1, 2, 60)]))
    outcome.add("test as dict", model.test_on_batch(x[:50], y[:50], sample_weight=np.arange(50.0), return_dict=True))
    outcome.add("predict", np.concatenate([model.predict_on_batch(x[:n]) for n in (1, 5, 61)]))
    job.fit(model, batched((x, y), BATCH), outcome, "fit/", epochs=1)
    outcome.add("train again", np.array(model.train_on_batch(x[:50], y[:50])))
    return outcome


@case
def class_weight_on_a_batch(job: Job) -> Outcome:
    model = job.wrap(recipes.cnn())
    model.compile(optimizer=optimizers.SGD(0.05), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = recipes.cnn_data(40)
    outcome = Outcome()
    outcome.add("train", np.array([model.train_on_batch(x, y, class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0, 4: 3.0})] * 2))
    outcome.add("weights", [np.asarray(w) for w in model.get_weights()])
    return outcome


@case
def predictions(job: Job) -> Outcome:
    """Of batches of fewer samples than ranks, of several outputs, of a dataset with labels and of one without an end."""
    x, y = recipes.two_inputs_data()
    inputs = recipes.two_inputs()
    model = job.wrap(keras.Model(inputs.inputs, {"sum": inputs.outputs[0], "left": inputs.inputs[0]}))
    outcome = Outcome()
    outcome.add("arrays", model.predict(x, batch_size=61, verbose=0))
    outcome.add("dataset", model.predict(batched((x, y), 3), verbose=0))
    outcome.add("steps", model.predict(batched(x, 32).repeat(), steps=9, verbose=0))
    outcome.add("weights", model.get_weights())
    return outcome
