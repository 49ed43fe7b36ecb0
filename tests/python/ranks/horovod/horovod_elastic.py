"""Elastic scripts whose ranks are killed: what they train in the end is compared with a training that nothing has stopped."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

from checks import check, raised, run

keras = tf.keras
FOLDER = sys.argv[1]
START = int(os.environ["TNT_RESTART"])
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
X = np.random.default_rng(1).normal(size=(16 * SIZE, 6)).astype(np.float32)
Y = np.random.default_rng(2).integers(0, 3, len(X))
MINE = slice(RANK, None, SIZE)


def die(start: int) -> None:
    """Ends the last rank in this start of the job, without a word."""
    if start == START and RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def model() -> Any:
    keras.utils.set_random_seed(5 + RANK + (START > 1))  # sync makes the ranks alike, and the commit the last start
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")])


def first_weights() -> list[np.ndarray]:
    keras.utils.set_random_seed(5)
    layers = [keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")]
    return keras.Sequential(layers).get_weights()


def error(trained: Any, steps: int) -> float:
    """The distance from so many steps of one device on all data."""
    reference = model()
    reference.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    reference.set_weights(first_weights())
    reference.fit(X, Y, batch_size=len(X), epochs=steps, verbose=0)
    pairs = zip(trained.get_weights(), reference.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@check
def loop() -> dict[str, Any]:
    trained, optimizer = model(), keras.optimizers.Adam(0.01)
    loss = keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def train_one_batch() -> None:
        with tf.GradientTape() as tape:
            value = loss(Y[MINE], trained(X[MINE], training=True))
        tape = hvd_tf.DistributedGradientTape(tape)
        grads = tape.gradient(value, trained.trainable_variables)
        optimizer.apply_gradients(zip(grads, trained.trainable_variables))  # noqa: B905  # as users write it

    state = hvd_tf.elastic.TensorFlowKerasState(trained, optimizer, batch=0, epoch=0)
    resets, began = [], []
    state.register_reset_callbacks([lambda: resets.append(START)])

    @hvd_tf.elastic.run
    def train(state: Any) -> None:
        began.append([state.epoch, state.batch])
        for state.epoch in range(state.epoch, 2):  # noqa: B020
            for batch in range(state.batch, 5):
                train_one_batch()
                state.batch = batch + 1
                if state.batch == 4 and state.epoch == 1:
                    die(0)
                if state.batch % 2 == 1:
                    state.commit()
            state.batch = 0

    train(state)
    return {"error": error(trained, 10), "began": began, "resets": resets}


@check
def fit() -> dict[str, Any]:
    keras.backend.clear_session()
    trained = model()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "sparse_categorical_crossentropy")
    dataset = tf.data.Dataset.from_tensors((X[MINE], Y[MINE])).repeat()
    state = hvd.elastic.KerasState(trained, batch=0, epoch=0)
    began, ends = [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (state.epoch, batch) == (1, 2):
                die(1)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append([state.epoch, int(np.asarray(trained.optimizer.iterations))])

    callbacks = [
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        Watch(),
    ]

    @hvd.elastic.run
    def train(state: Any) -> None:
        began.append([state.epoch, state.batch])
        trained.fit(dataset, steps_per_epoch=4, callbacks=callbacks, epochs=3 - state.epoch, verbose=0)

    train(state)
    return {"error": error(trained, 12), "began": began, "ends": ends}


@check
def in_one_process() -> list[Any]:
    """What a script raises by itself: it goes on from the commit, or from where it is."""
    state = ObjectState(hvd.broadcast_object, hvd.rank, count=0, seen=[])
    resets: list[int] = []

    @hvd.elastic.run
    def work(state: Any, limit: int) -> int:
        state.seen.append(state.count)
        if state.count == 0:
            state.register_reset_callbacks([lambda: resets.append(state.count)])
            state.count = 1
            state.commit()
            state.count = 7
            raise HorovodInternalError("try again")
        if state.count == 1:
            state.count = 2
            raise HostsUpdatedInterrupt()
        return state.count + limit

    @hvd.elastic.run
    def never(state: Any) -> None:
        raise HorovodInternalError("no")

    result = work(state, 10)
    seen_resets = list(resets)
    return [result, state.seen, seen_resets, raised(never, state)]


@check
def refused() -> list[Any]:
    state = hvd_tf.elastic.TensorFlowState([tf.Variable(float(RANK))], thing={1, 2})
    return raised(state.commit) if hvd.local_rank() == 0 else []


@check
def between_updates() -> list[Any]:
    trained = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    state = hvd_tf.elastic.TensorFlowKerasState(trained, optimizer)
    gradients = [tf.ones((6, 1)), tf.ones(1)]
    optimizer.apply(gradients, trained.trainable_variables)
    found = raised(state.commit)
    optimizer.apply(gradients, trained.trainable_variables)
    return [*found, *raised(state.commit)]


run(FOLDER, *sys.argv[2:])
