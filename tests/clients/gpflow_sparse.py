"""A sparse Gaussian process of GPflow in a loop by hand: the tape sums up the gradients of the ranks' parts of a batch."""

import gpflow
import keras
import numpy as np
import tensorflow as tf
from client import PLAIN, report, rng

import tarantella as tnt

RANK, SIZE = (0, 1) if PLAIN else (tnt.get_rank(), tnt.get_size())
x = rng.uniform(-2, 2, (96, 1))
y = np.sin(3 * x) + 0.1 * rng.normal(size=x.shape)
points = np.linspace(-2, 2, 8)[:, None]
kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
model = gpflow.models.SVGP(kernel, likelihood, points, num_data=len(x))
optimizer = keras.optimizers.Adam(0.01)
elbos = []


@tf.function
def step(a, b):
    tape = tf.GradientTape()
    with tape if PLAIN else tnt.DistributedGradientTape(tape) as tape:
        loss = model.training_loss((a, b))
    how = {} if PLAIN else {"samples": tf.shape(a)[0]}
    optimizer.apply(tape.gradient(loss, model.trainable_variables, **how), model.trainable_variables)


optimizer.build(model.trainable_variables)
for _ in range(3):
    for begin in range(0, 96, 32):
        step(*(tf.constant(part[begin : begin + 32][RANK::SIZE]) for part in (x, y)))
    elbos.append(model.elbo((x, y)) / len(x))
report(elbos=elbos, mean=model.predict_f(x[:20])[0], variance=model.likelihood.variance)
