"""What the callbacks of ranks agree on: that none has failed, whether to stop, the learning rate, the weights.

A callback runs on one rank or on all, and on all it may still do different things: raise, or set ``model.stop_training``,
on one only. The ranks would part then, and wait for each other in different places. So after each hook in which a callback
of any rank could do so, all ranks compare, in one small collective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.reduction import weights
from tarantella.keras.reproducible.shard_state import random_states
from tarantella.keras.step import accumulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end")
TEST_BATCH_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
BORDERS = (
    "on_train_begin",
    "on_epoch_begin",
    "on_test_begin",
    "on_test_end",
    "on_epoch_end",
    "on_train_end",
)
HOOKS = (*BATCH_HOOKS, *TEST_BATCH_HOOKS, *BORDERS)

_GOES_ON, _STOPS, _FAILED = range(3)


class Agreement:
    """That of one call of `fit` or `evaluate`. Making one is collective.

    Args:
        may_fail: the hooks in which this rank's callbacks can raise, or stop training, where others' do not.
        may_change: those in which they can change weights.
        restores: whether one of them can put back an earlier state of the training.
        is_same: whether the state of a training is the same on all ranks; else they have parts of what is accumulated.
    """

    def __init__(self, may_fail: Iterable[str], may_change: Iterable[str], restores: bool, is_same: bool = False) -> None:
        mine = [*(hook in set(may_fail) for hook in HOOKS), *(hook in set(may_change) for hook in HOOKS), restores]
        anywhere = collectives.all_reduce(np.array(mine, np.uint8), op="max").astype(bool)
        self._may_fail = {hook for hook, there in zip(HOOKS, anywhere, strict=False) if there}
        self._may_change = {hook for hook, there in zip(HOOKS, anywhere[len(HOOKS) :], strict=False) if there}
        self._restores, self._is_same = bool(anywhere[-1]), is_same
        if not self._may_fail.isdisjoint(TEST_BATCH_HOOKS):  # evaluation has no collective at each batch, and needs none
            self._may_fail.add("on_test_end")
        self._failure: Exception | None = None
        self._said = False

    @property
    def failed(self) -> bool:
        """Whether a callback of this rank has raised and the others do not know yet."""
        return self._failure is not None

    def keep(self, hook: str, failure: Exception) -> bool:
        """Takes what a callback has raised until ranks agree; False if they do not after this hook."""
        if hook not in self._may_fail:
            return False
        self._failure = failure
        return True

    def settle(self, hook: str, model: Any) -> None:
        """All ranks come out of the hook alike, or with an error. Collective.

        Raises:
            What a callback of this rank has raised, or TarantellaError with its text and rank. MismatchError: the weights
            differ, though no callback was to change them there.
        """
        if hook in self._may_fail or hook == "on_epoch_end":
            self._compare(model)
        if hook == "on_train_begin" and self._restores:
            self._take_masters_state(model)
        if hook in self._may_change and hook in BORDERS:
            self._take_masters_weights(model)

    def check_epoch(self, model: Any) -> None:
        """At the end of an epoch, before anything may change weights: nothing has done so in between. Collective."""
        if not self._may_change.isdisjoint(BATCH_HOOKS):
            weights.compare(adapter.weights(model), "at the end of the epoch (a callback that changes them runs on some only?)")

    def _compare(self, model: Any) -> None:
        state = _FAILED if self.failed else _STOPS if getattr(model, "stop_training", False) else _GOES_ON
        rates = adapter.learning_rates(model)
        values = np.array([float(rate.numpy()) for rate in rates])
        most = collectives.all_reduce(np.concatenate([[state], values, -values]), op="max")
        if most[0] == _FAILED:
            failure, self._failure = self._failure, None
            collectives.agree_on_failure(failure)
        if most[0] == _STOPS:
            model.stop_training = True
        highest, lowest = most[1 : len(values) + 1], -most[len(values) + 1 :]
        if not np.array_equal(highest, lowest):
            weights.broadcast(rates)
            self._say("the learning rate")

    def _take_masters_state(self, model: Any) -> None:
        """The weights, the optimizer's state and the epoch to begin with are those that the master's callback put back."""
        weights.broadcast([*adapter.weights(model), *adapter.optimizer_variables(model)])
        if self._is_same:
            weights.broadcast(random_states(model))
        else:
            accumulation.distribute_sums(model.optimizer)
        adapter.share_beginning(model, lambda numbers: [int(number) for number in collectives.broadcast(numbers)])

    def _take_masters_weights(self, model: Any) -> None:
        variables = adapter.weights(model)
        if weights.differing_ranks(variables):
            weights.broadcast(variables)
            self._say("the weights")

    def _say(self, what: str) -> None:
        if not self._said:
            self._said = True
            runtime.logger.warning("a callback has changed %s on some ranks only: all ranks take the master's", what)


class BeforeCallbacks(keras.callbacks.Callback):  # type: ignore[misc]
    """Goes before the callbacks that may change weights at the end of an epoch."""

    def __init__(self, agreement: Agreement) -> None:
        super().__init__()
        self._agreement = agreement

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._agreement.check_epoch(self.model)


class AfterCallbacks(keras.callbacks.Callback):  # type: ignore[misc]
    """Goes after all callbacks whose ranks are to agree."""

    def __init__(self, agreement: Agreement) -> None:
        super().__init__()
        self._agreement = agreement


def _settling(hook: str) -> Callable[..., None]:
    def settle(self: AfterCallbacks, *args: Any, **kwargs: Any) -> None:
        self._agreement.settle(hook, self.model)

    return settle


for _hook in (*BATCH_HOOKS, *BORDERS):
    setattr(AfterCallbacks, _hook, _settling(_hook))
