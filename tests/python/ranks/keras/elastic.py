"""elastic.py FOLDER PLAN [OPTION...]: a training that loses ranks. Each rank that is left writes what it has into FOLDER.

PLAN: ``NUMBER:PHASE:COUNT`` with commas: the rank with which the launcher began as NUMBER kills itself when it comes to this
phase so often, or stops itself if COUNT is negative. OPTION: ``batch_norm``, ``dropout``, ``files``, ``backup``, ``more``,
``checkpoint``, ``behind=I+J``: rank 1 fails in these steps, which others finish; ``unmet=I+J``: it fails where callbacks meet
after them; ``filtered``: data of unknown length; ``await=N``: steps are slow until N ranks, newcomers among them, have each
made one or ended, and phases ``with 1`` to ``with N`` say how many have; ``epochs=N``, ``slow``, ``grow=N``: rank 0 makes the
first step, and then gives the hostfile ``FOLDER/hosts`` N slots; ``scaled``: batches and rates by the number of ranks;
``decay`` of weights; ``early``: a step changes weights, and a variable that no model knows, before it has gradients;
``unknown``: a layer keeps averages in variables that no model knows; ``loaded``: rank 0 alone has read weights; ``drawn``,
``generator``: validation data that depend on how often they were read; ``relative``: a callback changes the learning rate by
factors before and after each step; ``reset``: a callback resets metrics in each epoch; ``late=N``: rank N hears that one is
lost while it joins; or what is to be refused.
"""

from __future__ import annotations

import atexit
import hashlib
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
from tarantella import collectives, runtime
from tarantella.errors import PeerLostError
from tarantella.keras.checkpoint.state import groups_of
from tarantella.keras.elastic.kept_state import KeptState
from tarantella.keras.elastic.newcomer import Newcomer
from tarantella.keras.elastic.operations import Operations

FOLDER, PLAN, OPTIONS = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
NUMBER = os.environ["TNT_INTERNAL_ELASTIC"]
OF_OPTIONS = dict(one.split("=") for one in OPTIONS if "=" in one)
AWAITED = int(OF_OPTIONS.get("await", 0))
EPOCHS, BATCH = int(OF_OPTIONS.get("epochs", 8 if AWAITED else 3)), 24
GROWN = OF_OPTIONS.get("grow", "")

seen: Counter[str] = Counter()
trained: list[Any] = []


def note_that_it_came() -> None:
    (FOLDER / f"{NUMBER}.came").touch()


def come_to(phase: str) -> None:
    seen[phase] += 1
    if f"{NUMBER}:{phase}:{seen[phase]}" in PLAN.split(","):
        time.sleep(0.5 if phase == "metric" else 0)
        note_that_it_came()
        os.kill(os.getpid(), signal.SIGKILL)
    if f"{NUMBER}:{phase}:-{seen[phase]}" in PLAN.split(","):
        os.kill(os.getpid(), signal.SIGSTOP)
    if f"{NUMBER}:{phase}:error" in PLAN.split(","):
        raise ValueError("a fault of the script")


def fall_behind(steps: list[int], meetings: list[int]) -> None:
    """This rank fails in steps that the others finish: it makes the step, and then has its state of before again.

    meetings: it fails in the first operations after these steps.
    """
    original = Operations._run

    def run(self: Any, operation: Any, again: Any, undo: Any, meeting: Any) -> Any:
        def fail() -> None:
            variables = [v for found in groups_of(trained[0]).values() for v in found]
            before = [v.numpy() for v in variables]
            operation()
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)
            raise PeerLostError("a rank was lost")

        def fail_to_hear() -> None:
            operation()
            raise PeerLostError("a rank was lost")

        is_step = operation is not again
        seen["made"] += is_step
        seen[f"after {seen['made']}"] += not is_step
        if is_step and seen["made"] in steps:
            return original(self, fail, again, undo, meeting)
        if not is_step and seen["made"] in meetings and seen[f"after {seen['made']}"] == 1:
            return original(self, fail_to_hear, again, undo, meeting)
        return original(self, operation, again, undo, meeting)

    Operations._run = run  # type: ignore[method-assign]


def join_late() -> None:
    """This rank is in the job, does not know it yet, and hears that another one is lost."""
    original, failures = runtime.world, iter([PeerLostError("a rank was lost")])

    def world() -> Any:
        found = original()
        for error in failures:
            raise error
        return found

    runtime.world = world


def begin_with(model: Any) -> None:
    trained.append(model)
    if "loaded" in OPTIONS and NUMBER == "0":
        model.set_weights([np.ones_like(weight) for weight in model.get_weights()])


def is_odd(option: str) -> bool:
    """Whether this is the newcomer, and not like the other ranks in this respect."""
    return option in OPTIONS and int(NUMBER) == AWAITED - 1


def come_to_calls(kind: Any, name: str, phase: str) -> None:
    """The phase is where a method of ours is called."""
    original = getattr(kind, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        come_to(phase)
        return original(*args, **kwargs)

    setattr(kind, name, call)


class Deadly(keras.layers.Dense):
    """Comes to a phase inside of a step: in forward, before its gradients are there."""

    def call(self, inputs: Any) -> Any:
        if tf.inside_function():
            come_to(f"trace of {self.name}")

            def forward(x: Any) -> Any:
                come_to(self.name)
                return x

            shape = inputs.shape
            inputs = tf.grad_pass_through(lambda x: tf.py_function(forward, [x], x.dtype))(inputs)
            inputs.set_shape(shape)
        return super().call(inputs)


def largest(y_true: Any, y_pred: Any) -> Any:
    """A metric. When a rank dies in it, the others have had its gradients for a while."""

    def compute(prediction: Any) -> Any:
        come_to("metric")
        return prediction

    found = tf.reduce_max(tf.py_function(compute, [y_pred], y_pred.dtype), axis=-1)
    found.set_shape([None])
    return found


class Early(keras.Sequential):
    """Changes weights before it has gradients, as the critic of a GAN is clipped."""

    steps = tf.Variable(0, trainable=False)  # of this class, so not among the variables of the model

    def train_step(self, *data: Any) -> Any:
        self.steps.assign(self.steps + 1)
        kernel = self.trainable_variables[0]
        kernel.assign(0.999 * kernel)
        return super().train_step(*data)


class Keeping(keras.layers.Layer):
    """Scales by averages of what it has seen: in a variable that Keras does not know, and one of which no layer knows."""

    of_all = tf.Variable(0.0, trainable=False)

    def build(self, shape: Any) -> None:
        self.of_one = tf.Variable(0.0, trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.of_one.assign_add(0.01)
            self.of_all.assign(0.9 * self.of_all + 0.1 * self.of_one)
        return inputs * (1 + self.of_one + self.of_all)


class Phases(keras.callbacks.Callback):
    batches = 0  # that it has heard of

    def on_train_begin(self, logs: Any = None) -> None:
        come_to("train_begin")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        come_to("batch_begin")
        if "slow" in OPTIONS:
            time.sleep(0.1)
        came = sum((FOLDER / f"{number}.came").exists() for number in range(AWAITED))
        come_to(f"with {came}")
        if seen["batch_begin"] > 1 and came < AWAITED:
            time.sleep(0.2 if seen["batch_begin"] < 30 else 1.0)  # newcomers have about a minute

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        come_to("batch_end")
        self.batches += 1
        if seen["batch_end"] == 1:
            note_that_it_came()
            (FOLDER / "begun").touch()
            if GROWN and NUMBER == "0":
                (FOLDER / "hosts").write_text(f"localhost slots={GROWN}\n")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        come_to("epoch_begin")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        come_to("epoch_end")

    def on_test_begin(self, logs: Any = None) -> None:
        come_to("test_begin")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        come_to("test_batch_end")

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        come_to("predict_batch_end")

    def on_test_end(self, logs: Any = None) -> None:
        come_to("test_end")

    def on_train_end(self, logs: Any = None) -> None:
        come_to("train_end")


class Relative(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) * 0.98

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) * 0.95


class Resetting(keras.callbacks.Callback):
    """Metrics of an epoch begin with its fourth batch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            self.model.reset_metrics()


def validation_data(x: Any, y: Any) -> dict[str, Any]:
    def batches() -> Any:
        numbers = np.random.default_rng(1)
        while True:
            chosen = numbers.integers(0, 60, 20)
            yield x[chosen], y[chosen]

    if "generator" in OPTIONS:
        return {"validation_data": batches(), "validation_steps": 3}
    if "drawn" in OPTIONS:
        drawn = tf.data.Dataset.from_tensor_slices((x[:60], y[:60])).shuffle(60, seed=1).batch(20)
        return {"validation_data": drawn, "validation_steps": 2}
    return {"validation_data": (x[:60], y[:60]), "validation_batch_size": 20}


def digest(model: Any) -> str:
    variables = [*model.variables, *model.optimizer.variables]
    return hashlib.sha256(b"".join(np.ascontiguousarray(v.numpy()).tobytes() for v in variables)).hexdigest()


def more(model: Any, x: Any, y: Any) -> dict[str, Any]:
    """What a script does when it has trained."""
    evaluated = model.evaluate(x, y, batch_size=20, verbose=0, callbacks=[Phases()])
    predicted = model.predict(x, verbose=0, callbacks=[Phases()]).tolist()
    come_to_calls(keras.Sequential, "save_weights", "save")
    model.save_weights(FOLDER / "end.weights.h5")
    weights = model.model.get_weights()
    model.model.load_weights(FOLDER / "end.weights.h5")
    is_saved = all(map(np.array_equal, weights, model.model.get_weights()))
    return {"evaluated": evaluated, "predicted": predicted, "saved": is_saved}


def callbacks_of_options() -> list[Any]:
    callbacks: list[Any] = [Phases(), *([Relative()] if "relative" in OPTIONS else [])]
    callbacks += [Resetting()] if "reset" in OPTIONS else []
    if "files" in OPTIONS:
        callbacks.append(keras.callbacks.ModelCheckpoint(FOLDER / "best.keras", monitor="loss", save_best_only=True))
        callbacks.append(keras.callbacks.CSVLogger(FOLDER / "log.csv"))
    if "backup" in OPTIONS:
        callbacks.append(keras.callbacks.BackupAndRestore(FOLDER / "backup", save_freq=4, delete_checkpoint=False))
    if "checkpoint" in OPTIONS:
        callbacks.append(tnt.callbacks.Checkpoint(FOLDER / "checkpoints", every_steps=4))
    return callbacks


def main() -> None:
    atexit.register(note_that_it_came)
    come_to_calls(Newcomer, "_ask", "ask")
    come_to_calls(Operations, "join", "join")
    come_to_calls(Operations, "run", "operation")
    come_to("start")
    if f"late={NUMBER}" in OPTIONS:
        join_late()
    come_to_calls(KeptState, "share", "share")
    come_to_calls(collectives, "all_reduce_each", "sums")
    keras.utils.set_random_seed(7)
    numbers = np.random.default_rng(0)
    scaled = "scaled" in OPTIONS
    batch = tnt.get_size() if scaled else BATCH
    x = numbers.normal(size=(10 * batch - 5, 12)).astype(np.float32)
    y = (x.sum(1) > 0).astype(np.int32)
    layers = [keras.Input((12,)), keras.layers.Dense(16, activation="tanh" if is_odd("model") else "relu")]
    layers += [keras.layers.BatchNormalization()] if "batch_norm" in OPTIONS else []
    layers += [keras.layers.Dropout(0.3)] if "dropout" in OPTIONS else []
    early = "early" in OPTIONS
    layers += [keras.layers.SpectralNormalization(keras.layers.Dense(8))] if early else []
    layers += [Keeping()] if "unknown" in OPTIONS else []
    model = tnt.Model((Early if early else keras.Sequential)([*layers, Deadly(2, name="last")]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"eager": {"run_eagerly": True}, "several": {"steps_per_execution": 2}}
    given = next((options[name] for name in OPTIONS if name in options), {})
    rate = tnt.keras.schedules.ExpDecayWithWarmup(0.005, steps_per_epoch=10) if scaled else 0.01
    decay: dict[str, Any] = {"weight_decay": 0.1, "use_ema": True} if "decay" in OPTIONS else {}
    model.compile(keras.optimizers.Adam(rate, **decay), loss, metrics=["accuracy", largest], **given)
    begin_with(model.model)
    tnt.get_rank()
    come_to("joined")
    if NUMBER == "1":
        fall_behind(*([int(step) for step in OF_OPTIONS.get(name, "-1").split("+")] for name in ("behind", "unmet")))
    seed = 4 if is_odd("data") else 3
    data: Any = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=seed).batch(batch)
    data = data.filter(lambda *_: True) if "filtered" in OPTIONS else data  # its length is not known any more
    if is_odd("error"):
        raise ValueError("a newcomer's")
    if "collective" in OPTIONS:
        tnt.broadcast(1.0)
    if "twice" in OPTIONS:
        model.fit(data, epochs=1, verbose=0, validation_data=(x[:60], y[:60]), validation_batch_size=20)
    own = {"tnt_distribute_dataset": False} if "own_data" in OPTIONS else {}
    history = model.fit(data, epochs=EPOCHS, verbose=2, callbacks=callbacks_of_options(), **validation_data(x, y), **own)
    found = {"history": history.history, "digest": digest(model.model), "ranks": tnt.get_size(), "rank": tnt.get_rank()}
    found["steps"], found["traces"] = int(Early.steps), seen["trace of last"]
    found["kept"] = [
        float(v) for layer in model.model.layers if isinstance(layer, Keeping) for v in (layer.of_one, Keeping.of_all)
    ]
    if "more" in OPTIONS:
        found |= more(model, x[:50], y[:50])
        found["again"] = model.fit(data, epochs=1, verbose=0).history
    (FOLDER / f"{NUMBER}.json").write_text(json.dumps(found))


main()
