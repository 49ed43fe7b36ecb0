"""elastic_loop.py FOLDER PLAN [OPTION...]: a loop of tnt.elastic.run that loses ranks. Those that are left write into FOLDER.

PLAN: ``NUMBER:PHASE:COUNT`` with commas: the rank with which the launcher began as NUMBER kills itself when it comes to this
phase so often. OPTION: ``optimizer`` reduces instead of the tape; and ``passes=K``: it adds up gradients of K steps; ``wait``
for newcomers; ``bare``: without tnt.elastic; or the use that is to be refused.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt

FOLDER, PLAN, OPTIONS = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
NUMBER = os.environ["TNT_INTERNAL_ELASTIC"]
PASSES = next((int(option.removeprefix("passes=")) for option in OPTIONS if "passes=" in option), None)
EPOCHS, BATCHES, BATCH = 4, 5 if PASSES is None else 4, 24
RANKS = tnt.get_size()

seen: Counter[str] = Counter()
began: list[list[int]] = []
sums: list[list[int]] = []  # of ones over ranks in a step, and the number of ranks
x = np.random.default_rng(0).normal(size=(BATCHES * BATCH, 4)).astype(np.float32)
y = (x @ [[1.0], [2.0], [-1.0], [0.5]] + 0.3).astype(np.float32)


def come_to(phase: str) -> None:
    seen[phase] += 1
    if f"{NUMBER}:{phase}:{seen[phase]}" in PLAN:
        os.kill(os.getpid(), signal.SIGKILL)
    if f"{NUMBER}:{phase}:error" in PLAN:
        raise ValueError("a fault of the script")


def come_to_calls(kind: type, name: str) -> None:
    """The phase is where a method is called."""
    original = getattr(kind, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        come_to(name)
        return original(*args, **kwargs)

    setattr(kind, name, call)


come_to_calls(tnt.elastic.State, "save")
come_to_calls(tnt.elastic.State, "set_values")  # in sync, when variables have come
units = 2 if "model" in OPTIONS and int(NUMBER) >= RANKS else 1
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units, kernel_initializer="zeros")])
optimizer = keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=PASSES)
if "optimizer" in OPTIONS:
    optimizer = tnt.optimizers.Optimizer(optimizer)


@tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])])
def step(a: Any, b: Any) -> Any:
    ones = tnt.all_reduce(tf.constant(1))
    tape: Any = tf.GradientTape()
    given = {"samples": tf.shape(a)[0]}
    with tape if "optimizer" in OPTIONS else tnt.DistributedGradientTape(tape) as tape:
        loss = tf.reduce_mean(tf.square(model(a, training=True) - b))
    if "optimizer" in OPTIONS:
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables, **given)
    else:
        optimizer.apply(tape.gradient(loss, model.trainable_variables, **given), model.trainable_variables)
    return ones


def wait() -> None:
    """Newcomers have about a minute."""
    if "wait" in OPTIONS and tnt.get_size() < RANKS and seen["step"] < 300:
        time.sleep(0.2)


def train(state: Any, result: str) -> str:
    rank, size = tnt.get_rank(), tnt.get_size()
    began.append([state.epoch, state.batch, rank, size])
    while state.epoch < EPOCHS or ("wait" in OPTIONS and size < RANKS and seen["step"] < 250):
        while state.batch < BATCHES:
            come_to("step")
            rows = slice(state.batch * BATCH, (state.batch + 1) * BATCH)
            if state.epoch < EPOCHS:
                sums.append([int(step(x[rows][rank::size], y[rows][rank::size])), size])
            wait()
            come_to("stepped")
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()
    come_to("end")
    return result


def fit(state: Any) -> None:
    other = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    other.compile("sgd", "mse")
    other.fit(x, y, batch_size=BATCH, verbose=0)


state = tnt.elastic.State(model, optimizer, epoch=0, batch=0)
if "fit" in OPTIONS:
    tnt.elastic.run(fit)(state)
if "name" in OPTIONS:
    state.steps = 1
if "bare" in OPTIONS:
    train(state, "")
outcome = tnt.elastic.run(train)(state, "done")
if "again" in OPTIONS:
    state.epoch -= 1
    outcome = tnt.elastic.run(train)(state, "done again")
weights = [w.tolist() for w in model.get_weights()]
found = {"weights": weights, "began": began, "sums": sums, "outcome": outcome, "state": [state.epoch, state.batch]}
(FOLDER / f"{NUMBER}.json").write_text(json.dumps({**found, "steps": int(optimizer.iterations.numpy())}))
