"""Checks of callbacks that do something on one rank only: raise, stop, change a rate or weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tarantella as tnt
from callback_runs import HOOKS, RANK, SIZE, Callback, Keep, callbacks, distributed, fit, flat, messages, plain, x, y
from checks import check, raised


class Do(Callback):
    """Does something in a hook, on the last rank, the second time."""

    def __init__(self, hook: str, action: Any, times: int = 2) -> None:
        super().__init__()
        self.times = times

        def act(*args: Any, **kwargs: Any) -> None:
            self.times -= 1
            if self.times == 0 and RANK == SIZE - 1:
                action(self.model)

        setattr(self, hook, act)


def complain(model: Any) -> None:
    raise ValueError("not with me")


@check
def failure_in_each_hook() -> dict[str, Any]:
    found = {}
    model = distributed()
    for hook in HOOKS:
        once = hook in ("on_train_begin", "on_train_end")
        found[hook] = raised(fit, model, [Keep(), Do(hook, complain, 1 if once else 2)])
    found["evaluate"] = raised(model.evaluate, x, y, batch_size=12, verbose=0, callbacks=[Do("on_test_batch_end", complain)])
    found["set_model"] = raised(fit, model, [Do("set_model", complain, 1)])
    found["after"] = len(fit(model, []).history["loss"])
    return found


@check
def failure_of_the_master_alone() -> list[str]:
    """In a callback that is given to the master only."""
    given = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: complain(None))] if RANK == 0 else None
    return raised(fit, distributed(), given)


def stop(model: Any) -> None:
    model.stop_training = True


@check
def stop_on_one_rank() -> dict[str, list[int]]:
    """The steps that were made and the epochs that ended."""
    found = {}
    hooks = [hook for hook in HOOKS if hook not in ("on_train_begin", "on_train_end", "on_test_begin", "on_test_batch_begin")]
    for hook in hooks:
        model = distributed()
        history = fit(model, [Do(hook, stop)])
        found[hook] = [int(model.optimizer.iterations), len(history.history["loss"]), int(model.stop_training)]
    return found


@check
def stop_on_all_ranks() -> list[int]:
    model = distributed()
    fit(model, [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: stop(model) if batch == 2 else None)])
    return [int(model.optimizer.iterations)]


@check
def changes_on_one_rank() -> dict[str, Any]:
    """The rates and weights of all ranks afterwards, or the error."""

    def other_rate(model: Any) -> None:
        model.optimizer.learning_rate = 0.5

    def other_weights(model: Any) -> None:
        model.set_weights([w + 1 for w in model.get_weights()])

    found: dict[str, Any] = {}
    for hook in ("on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end"):
        del messages[:]
        model = distributed()
        fit(model, [Do(hook, other_rate)], epochs=2)
        found[hook] = [float(model.optimizer.learning_rate), weights_equal(model), list(messages)]
    for hook in ("on_epoch_begin", "on_epoch_end", "on_train_end"):
        model = distributed()
        fit(model, [Do(hook, other_weights, 1)], epochs=2)
        found[f"weights {hook}"] = weights_equal(model)
    found["weights on_train_batch_end"] = raised(fit, distributed(), [Do("on_train_batch_end", other_weights)], epochs=1)
    return found


def weights_equal(model: Any) -> bool:
    return bool((tnt.all_reduce(flat(model), "max") == tnt.all_reduce(flat(model), "min")).all())


@check
def rate_of_the_master() -> list[float]:
    """A callback that runs once and sets the rate sets it everywhere."""

    class Halve(Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.01 / 2 ** (epoch + 1)

    serial, ours = plain(), distributed()
    fit(serial, [Halve()])
    fit(ours, [callbacks.Callback(Halve())])
    return [float(ours.optimizer.learning_rate), float(np.abs(flat(serial) - flat(ours)).max())]
