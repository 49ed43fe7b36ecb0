"""Runs that differ in the optimizer or in the number of bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import optimizers

import recipes
import tarantella as tnt
from recipes import batched, mlp_data
from special import BATCH, case, train_mlp
from special_data import own_batches
from training import Job, Outcome


@case
def clipnorm(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.1, clipnorm=0.05))[1]


@case
def global_clipnorm(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.1, global_clipnorm=0.05))[1]


class Normalizing(optimizers.SGD):
    """Divides each gradient by its norm, where it gets pairs of them and variables."""

    def apply_gradients(self, grads_and_vars: Any, **options: Any) -> Any:
        return super().apply_gradients([(g / (tf.norm(g) + 1e-6), v) for g, v in grads_and_vars], **options)


@case
def optimizer_with_pairs_of_its_own(job: Job) -> Outcome:
    return train_mlp(job, optimizer=Normalizing(0.02, momentum=0.5))[1]


@case
def gradient_accumulation_over_fits(job: Job) -> Outcome:
    """5 steps an epoch, updates after every third: what is added up outlasts epochs, fits and a file."""
    model, outcome = train_mlp(job, optimizer=optimizers.SGD(0.05, gradient_accumulation_steps=3), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path, **({} if job.serial else {"tnt_save_all_devices": True}))
        saved = [v.numpy() for v in keras.models.load_model(path).optimizer.variables]
        outcome.add("saved", saved if job.serial else [tnt.broadcast(value) for value in saved])
    job.fit(model, batched(mlp_data(130, seed=2), 50), outcome, "again/", epochs=2)
    return outcome


@case
def gradient_accumulation_over_data_of_unknown_length(job: Job) -> Outcome:
    """Keras starts a step without data at the end of each epoch: it counts, and here it would be one with an update."""
    data = batched(mlp_data(130), 50).filter(lambda x, y: True)
    return train_mlp(job, data=data, optimizer=optimizers.SGD(0.05, gradient_accumulation_steps=2), epochs=3)[1]


@case
def gradient_accumulation_eagerly(job: Job) -> Outcome:
    compiling = {"metrics": ["mae"], "run_eagerly": True}
    return train_mlp(job, optimizer=optimizers.SGD(0.05, gradient_accumulation_steps=2), compiling=compiling)[1]


@case
def gradient_accumulation_with_loss_scale(job: Job) -> Outcome:
    """The third of four kinds of batches overflows on one device, and on the one rank that has the sample: it is left out."""
    x, y = mlp_data()
    y[[100, 101]] = 3e38
    inner = optimizers.Adam(2e-3, gradient_accumulation_steps=2, clipnorm=0.05)
    optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=256.0)
    _, outcome = train_mlp(job, data=batched((x, y), BATCH), optimizer=optimizer, compiling={}, epochs=3)
    outcome.arrays = {key: value for key, value in outcome.arrays.items() if "weights" in key}  # the loss is infinite
    outcome.add("scale", [optimizer.dynamic_scale.numpy(), inner.iterations.numpy()])
    return outcome


@case
def gradient_accumulation_of_own_batches(job: Job) -> Outcome:
    return own_batches(job, optimizer=optimizers.SGD(0.05, gradient_accumulation_steps=2))


@case
def gradient_accumulation_of_an_embedding(job: Job) -> Outcome:
    x, y = recipes.embedding_data()
    optimizer = optimizers.SGD(0.05, gradient_accumulation_steps=2)
    model = recipes.embedding(rows=20_000)
    return job.train(model, batched((x % 20, y), BATCH), optimizer=optimizer, loss="binary_crossentropy")[1]


@case
def schedule_and_moving_average(job: Job) -> Outcome:
    """Both follow the number of updates."""
    rate = optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    return train_mlp(job, optimizer=optimizers.SGD(rate, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4))[1]


@case
def legacy_adam(job: Job) -> Outcome:
    """Legacy Keras' older optimizers, here and below: their learning rate decays by itself."""
    return train_mlp(job, optimizer=optimizers.legacy.Adam(2e-3, decay=0.1))[1]


@case
def legacy_global_clipnorm(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.legacy.RMSprop(0.01, global_clipnorm=0.05))[1]


@case
def legacy_loss_scale(job: Job) -> Outcome:
    """One sample overflows the scaled loss on one rank: all leave the step out."""
    x, y = mlp_data()
    y[100] = 3e38
    optimizer = keras.mixed_precision.LossScaleOptimizer(optimizers.legacy.Adam(2e-3), initial_scale=1024.0)
    _, outcome = train_mlp(job, data=batched((x, y), BATCH), optimizer=optimizer, compiling={})
    outcome.arrays = {key: value for key, value in outcome.arrays.items() if "weights" in key}  # the loss is infinite
    outcome.add("scale", [optimizer.loss_scale.numpy(), optimizer.iterations.numpy()])
    return outcome


@case
def mixed_float16(job: Job) -> Outcome:
    keras.mixed_precision.set_global_policy("mixed_float16")
    return train_mlp(job)[1]


@case
def mixed_bfloat16(job: Job) -> Outcome:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return train_mlp(job)[1]


@case
def bfloat16(job: Job) -> Outcome:
    keras.mixed_precision.set_global_policy("bfloat16")
    return train_mlp(job, optimizer=optimizers.SGD(0.01))[1]
