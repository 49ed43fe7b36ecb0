"""Runs that differ in the optimizer or in the number of bits."""

from __future__ import annotations

import keras
from keras import optimizers

from special import case, train_mlp
from training import Job, Outcome


@case
def clipnorm(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.1, clipnorm=0.05))[1]


@case
def global_clipnorm(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.1, global_clipnorm=0.05))[1]


@case
def clipvalue(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.1, clipvalue=0.01))[1]


@case
def gradient_accumulation(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.Adam(2e-3, gradient_accumulation_steps=2))[1]


@case
def moving_average_of_weights(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(0.05, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4))[1]


@case
def learning_rate_schedule(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)))[1]


@case
def loss_scale_optimizer(job: Job) -> Outcome:
    return train_mlp(job, optimizer=optimizers.LossScaleOptimizer(optimizers.Adam(2e-3), initial_scale=256.0))[1]


@case
def mixed_float16(job: Job) -> Outcome:
    keras.config.set_dtype_policy("mixed_float16")
    return train_mlp(job)[1]


@case
def mixed_bfloat16(job: Job) -> Outcome:
    keras.config.set_dtype_policy("mixed_bfloat16")
    return train_mlp(job)[1]


@case
def bfloat16(job: Job) -> Outcome:
    keras.config.set_dtype_policy("bfloat16")
    return train_mlp(job, optimizer=optimizers.SGD(0.01))[1]
