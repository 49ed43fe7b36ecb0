"""Trainings with `shard_optimizer=True` beside ordinary ones: the same bits, in memory and in files; and what is refused."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, raised, run
from sharding_recipes import data, digest, hashed, ids, inputs, state, targets, tiny, with_table
from tarantella.keras.adapter import is_slot, planned_slots

RANK = tnt.get_rank()
folder = Path(sys.argv[1])
optimizers = keras.optimizers


def compiled(optimizer: Any, shard: bool = True, make: Callable[[], Any] = with_table, **options: Any) -> Any:
    keras.backend.clear_session()
    model = tnt.Model(make(), shard_optimizer=shard)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **options)
    return model


# --------------------------------------------------------------------------------------------------------- the same bits


def decaying() -> Any:
    """Averages that replace the weights now and then, weights without decay, a schedule."""
    schedule = optimizers.schedules.ExponentialDecay(0.01, 3, 0.9)
    optimizer = optimizers.AdamW(schedule, weight_decay=0.05, use_ema=True, ema_overwrite_frequency=3, global_clipnorm=0.2)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def averages_of_a_table(shard: bool) -> str:
    """An epoch, and single steps after it."""
    model = compiled(decaying(), shard)
    history = model.fit(data(), epochs=1, verbose=0)
    for begin in (0, 16):
        model.train_on_batch(ids[begin : begin + 16], targets[begin : begin + 16])
    return digest(model, history)


def loss_scale_and_accumulation(shard: bool) -> str:
    optimizer = optimizers.LossScaleOptimizer(optimizers.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.1))
    model = compiled(optimizer, shard, tiny)
    return digest(model, model.fit(data(inputs), epochs=1, verbose=0))


def eager_accumulation(shard: bool) -> str:
    model = compiled(optimizers.RMSprop(0.01, gradient_accumulation_steps=2), shard, tiny, run_eagerly=True)
    for begin in range(0, 64, 16):
        model.train_on_batch(inputs[begin : begin + 16], targets[begin : begin + 16])
    return digest(model)


def loss_scale_and_xla(shard: bool) -> str:
    """The ranks agree on whether gradients are finite: here they are not at first."""
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(0.01, momentum=0.9), initial_scale=2.0**126)
    model = compiled(optimizer, shard, tiny, jit_compile=True)
    return digest(model, model.fit(data(inputs), epochs=1, verbose=0))


@check
def the_same_bits() -> dict[str, list[str]]:
    ways = (averages_of_a_table, loss_scale_and_accumulation, eager_accumulation, loss_scale_and_xla)
    return {train.__name__: [train(shard) for shard in (False, True)] for train in ways}


class OfAUser(optimizers.SGD):
    """An optimizer of a user's own, with state of its own."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(keras.ops.tanh(gradient), variable, learning_rate)


KINDS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {"weight_decay": 0.1},
    "Adadelta": {"use_ema": True},
    "Adagrad": {"clipvalue": 0.1},
    "Adamax": {},
    "Adafactor": {},
    "Nadam": {"clipnorm": 0.1},
    "Ftrl": {},
    "Lion": {"global_clipnorm": 0.1},
    "Lamb": {},
    "Muon": {},
    "ScheduleFreeAdamW": {},
}


OTHERS = ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")


class Several(keras.Model):
    """A network for each optimizer; one step trains them all."""

    def __init__(self) -> None:
        super().__init__()
        self.own = {kind: getattr(optimizers, kind)(0.01, **how) for kind, how in KINDS.items() if hasattr(optimizers, kind)}
        self.own["OfAUser"] = OfAUser(0.01, momentum=0.9, use_ema=True, ema_overwrite_frequency=2)
        self.networks = [tiny() for _ in self.own]

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean(tf.square(network(x) - y)) for network in self.networks]
        for loss, network, optimizer in zip(losses, self.networks, self.own.values(), strict=True):
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {f"loss_{i}": loss for i, loss in enumerate(losses)}


def several_digests(shard: bool) -> dict[str, str]:
    keras.backend.clear_session()
    keras_model = Several()
    model = tnt.Model(keras_model, shard_optimizer=shard)
    model.compile(loss=None)
    model.fit(data(inputs), epochs=1, verbose=0)
    found = {}
    for network, (name, optimizer) in zip(keras_model.networks, keras_model.own.items(), strict=True):
        assert any(map(is_slot, optimizer.variables)) == (shard and name != "SGD"), name
        found[name] = hashed([*network.get_weights(), *state(optimizer)])
    return found


@check
def each_kind_of_optimizer() -> dict[str, list[str]]:
    ordinary, sharded = several_digests(False), several_digests(True)
    return {name: [ordinary[name], sharded[name]] for name in ordinary}


@check
def kinds_that_are_not_tried() -> list[str]:
    kinds = [one for one in vars(optimizers).values() if isinstance(one, type) and issubclass(one, optimizers.Optimizer)]
    return [k.__name__ for k in kinds if k.__name__ not in (*KINDS, *OTHERS)]


@check
def whole_state_of_a_kind() -> list[str]:
    """Those whose state cannot be told apart by variables: all of it would be on all ranks."""
    whole = []
    variables = [keras.Variable(np.ones(shape, np.float32)) for shape in ((3, 4), (4,), (2, 2))]
    for kind in [getattr(optimizers, name) for name in KINDS if hasattr(optimizers, name)]:
        optimizer = kind(0.1)
        before = [id(v) for v in optimizer.variables]
        whole += [kind.__name__ for slot in planned_slots(optimizer, variables) if slot.variable is None]
        assert before == [id(v) for v in optimizer.variables], kind.__name__
        assert not optimizer.built, kind.__name__
    return whole


# ------------------------------------------------------------------------------------------------------ memory and files


@functools.cache
def with_adam() -> Any:
    """A training of two epochs, which all of the following look at. Its files stand in the folder."""
    model = compiled(optimizers.Adam(0.01))
    writing = keras.callbacks.ModelCheckpoint(folder / "during.keras")
    stored = tnt.callbacks.Checkpoint(folder / "sharded", every_steps=3, keep=9, sharded=True)
    model.fit(data(), epochs=2, verbose=0, callbacks=[writing, stored])
    return model


@check
def memory() -> dict[str, Any]:
    """The bytes that this rank has for the state, those that it has in numbers of one device, and its elements elsewhere."""
    slots = [v for v in with_adam().optimizer.variables if is_slot(v)]
    whole = sum(4 * int(np.prod(v.shape)) for v in slots)
    here = sum(4 * int(tf.size(v._value)) for v in slots)
    elsewhere = sum(int(tf.size(v._value)) for v in slots if not v.is_here)
    keys = with_adam()._tnt.hooks.reducers._reducers
    owners = [key.owners for key in keys if key.name == "gradients"]
    return {"whole": whole, "here": here, "elsewhere": elsewhere, "slots": len(slots), "owners": owners}


class CountsSteps(keras.callbacks.Callback):
    """How many steps the training had left."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1


def continued(shard: bool, name: str, step: int) -> list[Any]:
    """A training that goes on from another one's checkpoint: as another process does, from a copy of the folder."""
    copy = folder / f"after {name}"
    tnt.barrier()
    if RANK == 0:
        other_steps = re.compile(rf"fit1-step(?!{step:09d}\.)")
        shutil.copytree(folder / name, copy, ignore=lambda _, names: [n for n in names if other_steps.match(n)])
    tnt.barrier()
    model, steps = compiled(optimizers.Adam(0.01), shard), CountsSteps()
    stored = tnt.callbacks.Checkpoint(copy, every_steps=3, keep=9)
    model.fit(data(), epochs=2, verbose=0, callbacks=[steps, stored])
    return [digest(model), steps.count]


@check
def checkpoints() -> list[Any]:
    """An ordinary training goes on from the parts of a sharded one, and a sharded one from the ordinary one's file."""
    return [digest(with_adam()), continued(False, "sharded", 3), continued(True, "after sharded", 6)]


def loaded_state(name: str) -> str:
    return hashed(state(keras.models.load_model(folder / name).optimizer))


def state_in_h5(path: Path) -> str:
    with h5py.File(path) as file:
        group = file["optimizer_weights"]
        return hashed([np.asarray(group[name]) for name in group.attrs["weight_names"]])


@check
def files() -> list[Any]:
    """The state in memory, and in the files of each format."""
    model = with_adam()
    whole = hashed(state(model.optimizer))
    model.save(folder / "model.keras")
    model.save(folder / f"own{RANK}.keras", tnt_save_all_devices=True)
    model.export(folder / "exported")
    model.save(folder / "model.h5")  # last: Keras forgets the optimizer's configuration when it writes this format
    tnt.barrier()
    written = [loaded_state(f"own{RANK}.keras")]
    if RANK == 0:
        written += [loaded_state("model.keras"), loaded_state("during.keras"), state_in_h5(folder / "model.h5")]
    return [whole, written]


# --------------------------------------------------------------------------------------------------------------- refused


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


class OwnPairs(optimizers.SGD):
    """The same, where it gets pairs of gradients and variables."""

    def apply_gradients(self, grads_and_vars: Any) -> None:
        super().apply_gradients(grads_and_vars)


def of_fit(optimizer: Any, *callbacks: Any) -> list[str]:
    return raised(compiled(optimizer, make=tiny).fit, data(inputs), verbose=0, callbacks=list(callbacks))


@check
def setting() -> list[Any]:
    """What TNT_SHARD_OPTIMIZER says is for models that do not say."""
    try:
        os.environ["TNT_SHARD_OPTIMIZER"] = "1"
        asked = [tnt.Model(tiny(), **options)._tnt.options.shard_optimizer for options in ({}, {"shard_optimizer": False})]
        os.environ["TNT_SHARD_OPTIMIZER"] = "yes"
        return [asked, raised(tnt.Model, tiny())]
    finally:
        del os.environ["TNT_SHARD_OPTIMIZER"]


@check
def refused() -> dict[str, list[str]]:
    """Those that this version of Keras does not have are left out."""
    shared = with_adam()
    slots = [v for v in shared.optimizer.variables if is_slot(v)]
    slot = next(v for v in slots if not v.is_here)
    found = {
        "coupled": of_fit(Coupled(0.1)),
        "own apply": of_fit(OwnApply(0.1)),
        "own pairs": of_fit(OwnPairs(0.1)),
        "number": raised(tnt.Model, tiny(), shard_optimizer=1),
        "whole": raised(tnt.Model(shared.model).fit, data(), verbose=0),
        "used": raised(lambda: slot + 1),
        "shape": raised(slot.assign, np.zeros(99, np.float32)),
        "other value": raised(slots[0].assign, np.full(slots[0].shape, RANK, np.float32)),
        "other variable": raised(slots[RANK].assign, np.zeros(slots[RANK].shape, np.float32)),
    }
    if hasattr(optimizers, "MultiOptimizer"):
        several = optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD(0.1), {".*kernel": optimizers.Adam()}))
        found["several"] = of_fit(several)
    if hasattr(keras.callbacks, "SwapEMAWeights"):
        found["swaps"] = of_fit(optimizers.Adam(use_ema=True), keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
    orbax = getattr(keras.callbacks, "OrbaxCheckpoint", None)
    if orbax is not None:  # made without Orbax, which need not be installed
        found["orbax"] = of_fit(optimizers.Adam(), orbax.__new__(orbax))
    return found


run(str(folder), *sys.argv[2:])
