"""horovod_generations.py FOLDER PLAN loop|fit [wait]: a script with `hvd.elastic` under ``tarantella --elastic``.

PLAN: ``NUMBER:COUNT`` with commas: the rank with which the launcher began as NUMBER kills itself after so many steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

keras = tf.keras
FOLDER, PLAN, FORM, OPTIONS = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4:]
NUMBER = os.environ["TNT_INTERNAL_ELASTIC"]
hvd.init()
RANKS = hvd.size()
X = np.random.default_rng(1).normal(size=(24, 6)).astype(np.float32)
Y = np.random.default_rng(2).integers(0, 3, len(X))
steps, waited = 0, 0
began: list[list[int]] = []
resets: list[int] = []


def model() -> Any:
    keras.utils.set_random_seed(5)
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")])


def error(trained: Any, count: int) -> float:
    """The distance from so many steps of one device on all data."""
    reference = model()
    reference.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    reference.fit(X, Y, batch_size=len(X), epochs=count, verbose=0)
    pairs = zip(trained.get_weights(), reference.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def end_step() -> None:
    global steps
    steps += 1
    if f"{NUMBER}:{steps}" in PLAN:
        os.kill(os.getpid(), signal.SIGKILL)


def wait() -> None:
    """The state is as after a commit."""
    global waited
    while "wait" in OPTIONS and steps > 3 and hvd.size() < RANKS and waited < 300:  # newcomers have about a minute
        waited += 1
        time.sleep(0.2)
        state.check_host_updates()


trained, optimizer = model(), keras.optimizers.Adam(0.01)
loss = keras.losses.SparseCategoricalCrossentropy()


@tf.function
def train_one_batch(x: Any, y: Any) -> None:
    with tf.GradientTape() as tape:
        value = loss(y, trained(x, training=True))
    tape = hvd_tf.DistributedGradientTape(tape)
    grads = tape.gradient(value, trained.trainable_variables)
    optimizer.apply_gradients(zip(grads, trained.trainable_variables))  # noqa: B905  # as users write it


@hvd_tf.elastic.run
def loop(state: Any) -> None:
    began.append([state.epoch, state.batch, hvd.rank(), hvd.size()])
    x, y = X[hvd.rank() :: hvd.size()], Y[hvd.rank() :: hvd.size()]
    for state.epoch in range(state.epoch, 3):  # noqa: B020
        for state.batch in range(state.batch, 4):  # noqa: B020
            train_one_batch(x, y)
            end_step()
            if state.batch == 1:
                state.batch += 1
                state.commit()
                wait()
                state.batch -= 1
        state.batch = 0


class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        end_step()
        if state.batch < 4:  # else the epoch's end follows, which commits
            wait()


@hvd.elastic.run
def fit(state: Any) -> None:
    began.append([state.epoch, state.batch, hvd.rank(), hvd.size()])
    data = tf.data.Dataset.from_tensors((X[hvd.rank() :: hvd.size()], Y[hvd.rank() :: hvd.size()])).repeat()
    callbacks = [
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        Steps(),
    ]
    trained.fit(data, steps_per_epoch=4, callbacks=callbacks, epochs=3 - state.epoch, verbose=0)


if FORM == "fit":
    trained.compile(hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy")
    state = hvd.elastic.KerasState(trained, epoch=0, batch=0)
else:
    state = hvd_tf.elastic.TensorFlowKerasState(trained, optimizer, epoch=0, batch=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
(loop if FORM == "loop" else fit)(state)
found = {"error": error(trained, 12), "began": began, "resets": resets, "places": [hvd.rank(), hvd.size(), hvd.local_size()]}
(FOLDER / f"{NUMBER}.json").write_text(json.dumps(found))
