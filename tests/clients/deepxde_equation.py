"""An equation of DeepXDE, u'' = -sin(x): each rank has points of its own, and the optimizer sums up the gradients."""

import os

os.environ["DDE_BACKEND"] = "tensorflow"

import deepxde
import keras
import numpy as np
import tensorflow as tf
from client import PLAIN, report

import tarantella as tnt

RANK, SIZE = (0, 1) if PLAIN else (tnt.get_rank(), tnt.get_size())
points = np.linspace(-1, 3, 48, dtype="float32")[:, None]


def equation(x, u):
    return deepxde.grad.hessian(u, x) + tf.sin(x)


def bound(x, u):
    return (x + 1) * (3 - x) * u + tf.sin(x)


line = deepxde.geometry.Interval(-1, 3)
data = deepxde.data.PDE(line, equation, [], anchors=points[RANK::SIZE], solution=np.sin, num_test=40)
network = deepxde.nn.FNN([1, 16, 16, 1], "tanh", keras.initializers.GlorotUniform(1))
network.apply_output_transform(bound)
model = deepxde.Model(data, network)
optimizer = keras.optimizers.SGD(1e-3)
model.compile(optimizer if PLAIN else tnt.optimizers.Optimizer(optimizer), metrics=["l2 relative error"])
history, _ = model.train(iterations=20, display_every=10, verbose=0)
report(test=history.loss_test, metrics=history.metrics_test, weights=network.get_weights())
