"""`hvd.join` beside the tape and the optimizer: rank r has r + 1 batches. Serial Keras has zeros for those that joined."""

from __future__ import annotations

import gc
import sys
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras

from checks import check, raised, run

FOLDER = sys.argv[1]
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROWS, WORDS = 8, 300
X = np.random.default_rng(1).integers(0, WORDS, (SIZE, SIZE, ROWS, 3))  # of each step and rank
Y = np.random.default_rng(2).normal(size=(SIZE, SIZE, ROWS, 1)).astype(np.float32)
ACTIVE = [range(step, SIZE) for step in range(SIZE)]  # ranks
mse = keras.losses.MeanSquaredError()


def net() -> Any:
    """The table's gradient is reduced by rows."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    layers = [keras.Input((3,)), keras.layers.Embedding(WORDS, 64), keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def own() -> Any:
    """This rank's batches."""
    return [(tf.constant(X[step, RANK]), tf.constant(Y[step, RANK])) for step in range(RANK + 1)]


def serial() -> list[np.ndarray]:
    trained, optimizer = net(), keras.optimizers.SGD(0.5)
    for step, ranks in enumerate(ACTIVE):
        with tf.GradientTape() as tape:
            loss = tf.add_n([mse(Y[step, rank], trained(X[step, rank], training=True)) for rank in ranks]) / SIZE
        grads = map(tf.convert_to_tensor, tape.gradient(loss, trained.trainable_variables))
        optimizer.apply_gradients(zip(grads, trained.trainable_variables, strict=True))
    return trained.get_weights()


def result(trained: Any, last: int) -> list[Any]:
    """The highest rank has made all steps; where the others stopped, they keep their weights."""
    of_last = hvd_tf.broadcast_object([w.tolist() for w in trained.get_weights()], SIZE - 1)
    return [last, max(float(np.abs(np.array(a) - b).max()) for a, b in zip(of_last, serial(), strict=True))]


def train(run_step: Any) -> int:
    for x, y in own():
        run_step(x, y)
    return int(hvd_tf.join())


@check
def tape() -> dict[str, list[Any]]:
    found = {}
    for name, wrap in (("graph", tf.function), ("eager", lambda function: function)):
        trained, optimizer = net(), keras.optimizers.SGD(0.5)

        @wrap
        def step(x, y, trained=trained, optimizer=optimizer):
            with tf.GradientTape() as plain:
                loss = mse(y, trained(x, training=True))
            distributed = hvd_tf.DistributedGradientTape(plain)
            grads = distributed.gradient(loss, trained.trainable_variables)
            optimizer.apply_gradients(zip(grads, trained.trainable_variables, strict=True))

        found[name] = result(trained, train(step))
    return found


@check
def optimizer() -> list[Any]:
    """`train_on_batch`, with a metric that is summed up in between."""
    trained = net()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")

    def step(x, y):
        loss = trained.train_on_batch(x, y)
        hvd_tf.allreduce(tf.constant(loss), name="loss")

    return result(trained, train(step))


@check
def fit() -> list[Any]:
    """The step in which the data end announces nothing."""
    trained = net()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    signature = (tf.TensorSpec([ROWS, 3], tf.int64), tf.TensorSpec([ROWS, 1], tf.float32))
    trained.fit(tf.data.Dataset.from_generator(own, output_signature=signature), verbose=0)
    return result(trained, int(hvd_tf.join()))


@check
def passes() -> list[Any]:
    """Each batch twice, of which the mean is taken. All ranks ask each other for overflows in each pass."""
    accumulating = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    trained = net()
    trained.compile(hvd.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(accumulating)), "mse")

    def step(x, y):
        trained.train_on_batch(x, y)
        trained.train_on_batch(x, y)

    return result(trained, train(step))


@check
def loss_scale() -> list[Any]:
    """A joined rank's zeros are no overflow, and no consent to a step that overflows elsewhere."""
    scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
    trained = net()
    trained.compile(hvd.DistributedOptimizer(scaled), "mse")
    steps = own()
    if RANK == SIZE - 1:
        steps.insert(1, (steps[0][0], steps[0][1] * np.inf))
    for x, y in steps:
        trained.train_on_batch(x, y)
    last = int(hvd_tf.join())
    scale = scaled.loss_scale if hasattr(scaled, "loss_scale") else scaled.dynamic_scale  # of legacy Keras or Keras 3
    return [last, int(scaled.inner_optimizer.iterations), float(scale)]


@check
def first_step() -> list[str]:
    """A rank that has joined cannot make a new reducer."""
    trained = net()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    if RANK == 0:
        return raised(hvd_tf.join)
    return raised(trained.train_on_batch, X[0, RANK], Y[0, RANK])


@check
def dropped_model() -> list[str]:
    """A rank that joins without its variables says so, and the others do not wait for it for ever."""
    trained = net()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    trained.train_on_batch(X[0, RANK], Y[0, RANK])
    if RANK > 0:
        return raised(trained.train_on_batch, X[0, RANK], Y[0, RANK])
    trained = None
    keras.backend.clear_session()
    gc.collect()
    return raised(hvd_tf.join)


run(FOLDER, *sys.argv[2:])
