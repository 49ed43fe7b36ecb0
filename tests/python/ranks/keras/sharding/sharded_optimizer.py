"""Trainings with `shard_optimizer=True` beside ordinary ones: the same bits, in memory and in files; and what is refused."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run
from tarantella.keras.adapter import is_slot, planned_slots

RANK = tnt.get_rank()
folder = Path(sys.argv[1])
random = np.random.default_rng(0)
ids = random.integers(0, 40, size=(61, 6)).astype(np.int32)  # a batch of 16 has a shorter one at its end
targets = random.normal(size=(61, 3)).astype(np.float32)
optimizers = keras.optimizers


def small() -> Any:
    """A table, whose gradient is sparse, matrices and vectors."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(3000, 8, name="table"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, activation="tanh", kernel_constraint="unit_norm", name="hidden"),
            layers.Dense(3, name="last"),
        ]
    )


def data(batch: int = 16) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((ids, targets)).batch(batch)


def compiled(optimizer: Any, shard: bool, make: Callable[[], Any] = small, **options: Any) -> Any:
    eagerly = options.pop("run_eagerly", False)
    model = tnt.Model(make(), shard_optimizer=shard, **options)
    model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=eagerly)
    return model


def state(optimizer: Any) -> list[Any]:
    return [(tuple(v.shape), np.asarray(v)) for v in optimizer.variables]


def digest(model: Any, history: Any = None) -> str:
    """Of weights, optimizer state and logs: every bit counts."""
    text = hashlib.sha256()
    for weight in model.get_weights():
        text.update(np.ascontiguousarray(weight).tobytes())
    for shape, value in state(model.optimizer):
        assert shape == value.shape
        text.update(f"{shape} {value.dtype}".encode() + np.ascontiguousarray(value).tobytes())
    if history is not None:
        text.update(repr(history.history).encode())
    return text.hexdigest()[:16]


def trained(optimizer: Any, shard: bool, epochs: int = 2, **options: Any) -> str:
    keras.backend.clear_session()
    model = compiled(optimizer(), shard, **options)
    return digest(model, model.fit(data(), epochs=epochs, verbose=0))


def decaying() -> Any:
    """Averages that replace the weights now and then, weights without decay, a schedule."""
    schedule = optimizers.schedules.ExponentialDecay(0.01, 3, 0.9)
    optimizer = optimizers.AdamW(schedule, weight_decay=0.05, use_ema=True, ema_overwrite_frequency=3, global_clipnorm=0.2)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def accumulating() -> Any:
    return optimizers.LossScaleOptimizer(optimizers.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.1))


class OfAUser(optimizers.SGD):
    """An optimizer of a user's own, with state of its own."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(keras.ops.tanh(gradient), variable, learning_rate)


OPTIMIZERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "adamw with averages": (decaying, {}),
    "sgd without state": (lambda: optimizers.SGD(0.1), {}),
    "loss scale and accumulation": (accumulating, {"epochs": 1}),
    "accumulation, eager": (
        lambda: optimizers.RMSprop(0.01, gradient_accumulation_steps=2),
        {"epochs": 1, "run_eagerly": True},
    ),
    "adafactor": (lambda: optimizers.Adafactor(0.01), {"epochs": 1}),
    "lion of a user": (lambda: OfAUser(0.01, momentum=0.9, use_ema=True), {"epochs": 1}),
    "nadam on shards": (lambda: optimizers.Nadam(0.01, clipnorm=0.1), {"epochs": 1, "reproducible": 4}),
    **({"muon": (lambda: optimizers.Muon(0.01), {"epochs": 1})} if hasattr(optimizers, "Muon") else {}),
    **(
        {"schedule-free": (lambda: optimizers.ScheduleFreeAdamW(0.01), {"epochs": 1})}
        if hasattr(optimizers, "ScheduleFreeAdamW")
        else {}
    ),
}


@check
def the_same_bits() -> dict[str, list[str]]:
    return {name: [trained(make, shard, **how) for shard in (False, True)] for name, (make, how) in OPTIMIZERS.items()}


@check
def few_optimizers() -> dict[str, list[str]]:
    names = ("adamw with averages", "nadam on shards")
    return {name: [trained(OPTIMIZERS[name][0], s, **OPTIMIZERS[name][1]) for s in (False, True)] for name in names}


@check
def every_optimizer_of_keras() -> list[str]:
    """Those whose state cannot be told apart by variables: all of it would be on all ranks."""
    whole = []
    variables = [keras.Variable(np.ones(shape, np.float32)) for shape in ((3, 4), (4,), (2, 2))]
    kinds = [
        value for value in vars(optimizers).values() if isinstance(value, type) and issubclass(value, optimizers.Optimizer)
    ]
    for kind in kinds:
        if kind.__name__ not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer"):
            optimizer = kind(0.1)
            before = [id(v) for v in optimizer.variables]
            whole += [kind.__name__ for slot in planned_slots(optimizer, variables) if slot.variable is None]
            assert before == [id(v) for v in optimizer.variables], kind.__name__
            assert not optimizer.built, kind.__name__
    return whole


@check
def memory() -> dict[str, Any]:
    """The bytes that this rank has for the state, those that it has in numbers of one device, and its elements elsewhere."""
    model = compiled(optimizers.Adam(0.01), True)
    model.fit(data(), epochs=1, verbose=0)
    slots = [v for v in model.optimizer.variables if is_slot(v)]
    whole = sum(4 * int(np.prod(v.shape)) for v in slots)
    here = sum(4 * int(tf.size(v._value)) for v in slots)
    elsewhere = sum(int(tf.size(v._value)) for v in slots if not v.is_here)
    return {"whole": whole, "here": here, "elsewhere": elsewhere, "slots": len(slots)}


def loaded_state(path: Path) -> list[list[float]]:
    return [np.ravel(value).tolist() for _, value in state(keras.models.load_model(path).optimizer)]


def state_in_h5(path: Path) -> list[list[float]]:
    with h5py.File(path) as file:
        group = file["optimizer_weights"]
        return [np.ravel(group[name]).tolist() for name in group.attrs["weight_names"]]


@check
def files() -> dict[str, Any]:
    """Files are those of one device, whoever writes them; a training goes on from them with shards and without."""
    found: dict[str, Any] = {}
    after = {}
    for shard in (False, True):
        path = Path(folder, f"shard{shard}")
        if RANK == 0:
            path.mkdir()
        tnt.barrier()
        model = compiled(optimizers.Adam(0.01), shard)
        writing = keras.callbacks.ModelCheckpoint(path / "during.keras")
        model.fit(data(), epochs=1, verbose=0, callbacks=[writing, keras.callbacks.BackupAndRestore(path / "backup")])
        model.save(path / "model.keras")
        model.save(path / f"own{RANK}.keras", tnt_save_all_devices=True)
        model.save_weights(path / "model.weights.h5")
        model.export(path / "exported")
        model.save(path / "model.h5")  # last: Keras forgets the optimizer's configuration when it writes this format
        after[shard] = [loaded_state(path / name) for name in ("model.keras", "during.keras", f"own{RANK}.keras")]
        after[shard].append(state_in_h5(path / "model.h5"))
        tnt.barrier()
    found["same files"] = [a == b == after[False][0] for a, b in zip(after[False], after[True], strict=True)]
    path = Path(folder, "shardTrue", "model.keras")
    going_on = []
    for shard in (False, True):
        model = tnt.Model(keras.models.load_model(path), shard_optimizer=shard)
        model.fit(data(), epochs=1, verbose=0)
        going_on.append(digest(model))
    model = compiled(optimizers.Adam(0.01), True)
    model.fit(data(8), epochs=1, verbose=0)  # something else, which is overwritten
    model.load_weights(path.with_name("model.weights.h5"))
    model.fit(data(), epochs=1, verbose=0)
    found["goes on"] = [*going_on, digest(model)]
    return found


@check
def checkpoints() -> list[str]:
    """A training that is interrupted goes on from a checkpoint with shards or without, as if it had not been."""
    whole = compiled(optimizers.Adam(0.01), False)
    found = [digest(whole, whole.fit(data(), epochs=2, verbose=0))]
    for number, (before, later) in enumerate(((False, True), (True, False), (True, True))):
        for shard, steps in ((before, 3), (later, 2)):
            model = compiled(optimizers.Adam(0.01), shard)
            settings = tnt.callbacks.Checkpoint(Path(folder, f"checkpoints{number}"), every_steps=2)
            stop = [StopsAfter(steps)] if shard is before and steps == 3 else []
            history = model.fit(data(), epochs=2, verbose=0, callbacks=[settings, *stop])
        found.append(digest(model, history))
    return found


class StopsAfter(keras.callbacks.Callback):
    """Stops the training in the middle of its first epoch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == self.steps:
            self.model.stop_training = True


@check
def single_steps() -> list[str]:
    found = []
    for shard in (False, True):
        model = compiled(optimizers.Adam(0.01), shard)
        for begin in range(0, 48, 16):
            model.train_on_batch(ids[begin : begin + 16], targets[begin : begin + 16])
        found.append(digest(model))
    return found


class Coupled(optimizers.SGD):
    """Its step for a variable depends on the variables before."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.seen = self.add_variable((), name="seen")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign_add(self.seen, keras.ops.sum(keras.ops.abs(gradient)))
        super().update_step(gradient / self.seen.value, variable, learning_rate)


class OwnApply(optimizers.SGD):
    """It does something else with gradients."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        super().apply(grads, trainable_variables)


@check
def refused() -> list[list[str]]:
    swaps = keras.callbacks.SwapEMAWeights(swap_on_epoch=True) if hasattr(keras.callbacks, "SwapEMAWeights") else None
    shared = compiled(optimizers.Adam(0.01), True)
    shared.fit(data(), verbose=0)
    found = [
        raised(compiled(Coupled(0.1), True).fit, data(), verbose=0),
        raised(compiled(OwnApply(0.1), True).fit, data(), verbose=0),
        raised(tnt.Model, small(), shard_optimizer=1),
        raised(tnt.Model(shared.model).fit, data(), verbose=0),
    ]
    slot = next(v for v in shared.optimizer.variables if is_slot(v) and not v.is_here)
    found.append(raised(lambda: slot + 1))
    found.append(raised(slot.assign, np.zeros(99, np.float32)))
    found.append(
        raised(compiled(optimizers.Adam(use_ema=True), True).fit, data(), verbose=0, callbacks=[swaps]) if swaps else []
    )
    return found


@check
def fingerprints() -> list[str]:
    """The trainings of which TNT_FINGERPRINT tells."""
    return [trained(lambda: optimizers.Adam(0.01), shard, epochs=1) for shard in (False, True)]


run(str(folder), *sys.argv[2:])
