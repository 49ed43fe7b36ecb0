"""Runs that differ in what fit and evaluate are asked for."""

from __future__ import annotations

from tensorflow import keras
from tensorflow.keras import optimizers

import recipes
from recipes import batched, mlp_data
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
    compiling = {"metrics": ["mae"], "steps_per_execution": 3}
    return train_mlp(job, compiling=compiling)[1]


@case
def run_eagerly(job: Job) -> Outcome:
    return train_mlp(job, compiling={"metrics": ["mae"], "run_eagerly": True})[1]


@case
def fit_twice(job: Job) -> Outcome:
    model, outcome = train_mlp(job)
    job.fit(model, batched(mlp_data(130, seed=2), 50), outcome, "again/", epochs=4, initial_epoch=2)
    outcome.add("predict", model.predict(mlp_data()[0], verbose=0))
    return outcome


@case
def compiled_again(job: Job) -> Outcome:
    model, outcome = train_mlp(job)
    model.compile(optimizer=optimizers.RMSprop(1e-3), loss="mae", metrics=["mse"])
    job.fit(model, batched(mlp_data(130, seed=2), 50), outcome, "again/", epochs=2)
    outcome.add("evaluate", model.evaluate(batched(mlp_data(), BATCH), verbose=0))
    return outcome


@case
def frozen_between(job: Job) -> Outcome:
    model, outcome = train_mlp(job)
    model.layers[0].trainable = False
    model.compile(optimizer=optimizers.SGD(0.05), loss="mse")
    job.fit(model, batched(mlp_data(), BATCH), outcome, "again/", epochs=2)
    return outcome
