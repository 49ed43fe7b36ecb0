"""The agreement of ranks after their callbacks: whether one failed, whether to stop, the learning rate, the weights.

A callback runs on one rank or on all, and even on all it may do different things: raise, or set ``model.stop_training``, on one
of them only. The ranks would then continue differently and wait for each other in different places. So after each hook in which
a callback of any rank could do such a thing, all ranks compare, in one small collective.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.errors import MismatchError, TarantellaError
from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.reduction import weights
from tarantella.keras.reproducible.shard_state import random_states
from tarantella.keras.step import accumulation

BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end")
TEST_BATCH_HOOKS = ("on_test_batch_begin", "on_test_batch_end")
OUTER_HOOKS = (
    "on_train_begin",
    "on_epoch_begin",
    "on_test_begin",
    "on_test_end",
    "on_epoch_end",
    "on_train_end",
)
HOOKS = (*BATCH_HOOKS, *TEST_BATCH_HOOKS, *OUTER_HOOKS)

_GOES_ON, _STOPS, _FAILED, _WRITES = range(4)
_KEY_BYTES, _TEXT_BYTES = 17, 1000


class Agreement:
    """The agreement during one call of `fit` or `evaluate`. Making one is collective.

    Args:
        may_fail: the hooks in which this rank's callbacks can raise, or stop training, where those of others do not.
        may_change: the hooks in which they can change weights.
        restores: whether one of them can restore an earlier state of the training.
        is_same: whether the state of a training is the same on all ranks; otherwise each accumulates a part of its own.
        is_whole: whether each rank has all weights; otherwise one that restores gives each rank its own.
        served: the context in which other ranks answer the master about state that they hold.
    """

    def __init__(
        self,
        may_fail: Iterable[str],
        may_change: Iterable[str],
        restores: bool,
        *,
        is_same: bool = False,
        is_whole: bool = True,
        served: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        here = [*(hook in set(may_fail) for hook in HOOKS), *(hook in set(may_change) for hook in HOOKS), restores]
        anywhere = collectives.all_reduce(np.array(here, np.uint8), op="max").astype(bool)
        self._may_fail = {hook for hook, is_set in zip(HOOKS, anywhere, strict=False) if is_set}
        self._may_change = {hook for hook, is_set in zip(HOOKS, anywhere[len(HOOKS) :], strict=False) if is_set}
        self._restores, self._is_same, self._is_whole = bool(anywhere[-1]), is_same, is_whole
        if not self._may_fail.isdisjoint(TEST_BATCH_HOOKS):  # evaluation has no collective at each batch, and needs none
            self._may_fail.add("on_test_end")
        self._served = served
        self._failure: Exception | None = None
        self._rates: list[Any] | None = None
        self._warned = False
        self.has_begun = False
        """Whether all ranks have what callbacks have restored when the training began."""

    @property
    def failed(self) -> bool:
        """Whether a callback of this rank has raised and the others do not know yet."""
        return self._failure is not None

    def keep(self, hook: str, failure: Exception) -> bool:
        """Keeps an exception of a callback until the ranks agree; False if they do not agree after this hook."""
        if hook not in self._may_fail:
            return False
        self._failure = failure
        return True

    def agree(self, hook: str, model: Any) -> None:
        """Brings all ranks out of the hook in the same state, or with an error. Collective.

        Raises:
            The exception that was kept on this rank, or TarantellaError with its text and rank.
        """
        if hook in OUTER_HOOKS:
            self._rates = None
        if hook in self._may_fail or hook == "on_epoch_end":
            self._compare(model)
        if hook == "on_train_begin" and self._restores:
            self._take_masters_state(model)
        if hook in self._may_change and hook in OUTER_HOOKS:
            self._take_masters_weights(model)
        self.has_begun = self.has_begun or hook == "on_train_begin"

    def check_epoch(self, model: Any) -> None:
        """At the end of an epoch, before a callback may change weights: checks that none did within it. Collective.

        Raises:
            MismatchError: the weights differ.
        """
        if not self._may_change.isdisjoint(BATCH_HOOKS):
            weights.compare(adapter.weights(model), "at the end of the epoch (a callback that changes them runs on some only?)")

    def agrees_after(self, hook: str) -> bool:
        """Whether the ranks agree after each call of this hook, and a callback may write files in it with them."""
        return hook in self._may_fail and hook not in TEST_BATCH_HOOKS

    def write(self, model: Any, path: str | None, write_here: Callable[[], Any]) -> None:
        """Writes a file in a callback, while the other ranks are in callbacks of the same hook, or after them.

        A path that several ranks ask for at a time is written by the first of them alone. All go on when it is there.

        path: None: each rank writes, one after another.

        Raises:
            The exception of `write_here`, on the rank that wrote; TarantellaError on others that asked for the same file.
        """
        with collectives.preceded(None):
            self._meet(model, _WRITES, [0, 0])
            key = hashlib.blake2b(os.path.abspath(path).encode(), digest_size=_KEY_BYTES - 1).digest() if path else b""
            self._take_turns((b"\1" if path else b"\2") + key, write_here)

    def before_collective(self, model: Any) -> None:
        """A callback begins a collective call: ranks that write files before it are done first."""
        if self._meet_writers(model, _GOES_ON, [1, 0])[0] == _FAILED:
            collectives.agree_on_failure(None)

    def _take_turns(self, key: bytes = b"", write_here: Callable[[], Any] = lambda: None) -> None:
        """Ranks write what their callbacks have asked for. Collective.

        key: begins with 1 and identifies a file, or with 2; empty: this rank asks for nothing.
        """
        own_key = _padded(key, _KEY_BYTES)
        keys = [bytes(row) for row in collectives.all_gather(own_key)]
        failure, remote_failure = None, ""
        for rank, asked in enumerate(keys):
            if asked[0] == 0 or (asked[0] == 1 and asked in keys[:rank]):
                continue
            own: Exception | None = None
            with self._served() if self._served is not None and rank == runtime.get_master_rank() else nullcontext():
                if rank == runtime.get_rank():
                    try:
                        write_here()
                    except Exception as error:
                        own = failure = error
            text = "" if own is None else f"{type(own).__name__}: {own}"
            said = bytes(collectives.broadcast(_padded(text.encode(), _TEXT_BYTES), rank)).rstrip(b"\0")
            if said and asked == bytes(own_key):
                remote_failure = f"rank {rank} failed: {said.decode(errors='replace')}"
        if failure is not None:
            raise failure
        if remote_failure:
            raise TarantellaError(remote_failure)

    def _meet_writers(self, model: Any, state: int, where: list[int]) -> NDArray[Any]:
        """Meets the other ranks, once more after each file that one of them writes in a callback."""
        while (maxima := self._meet(model, state, where))[0] == _WRITES:
            self._take_turns()
        return maxima

    def _meet(self, model: Any, state: int, where: list[int]) -> NDArray[Any]:
        """The maxima over ranks of the state and the learning rates, and their negatives. Collective.

        where: [1, 0] before a collective call of a callback, [0, 1] after the hook, [0, 0] before a file is written.
        """
        with tf.init_scope():  # a callback trains another model, whose step is being traced
            values = np.array([float(rate.numpy()) for rate in self._learning_rates(model)])
        with self.meeting(model):
            maxima: NDArray[Any] = collectives.all_reduce(np.concatenate([[state], where, values, -values]), op="max")
            if maxima[0] not in (_WRITES, _FAILED) and maxima[1] and maxima[2]:
                in_call = collectives.all_gather(np.array(where[0]))
                one, other = (int(np.argmax(in_call == is_in)) for is_in in (1, 0))
                raise MismatchError(f"rank {one} is in a collective call while the callbacks of rank {other} have ended")
        return np.concatenate([maxima[:1], maxima[3:]])

    def _compare(self, model: Any) -> None:
        state = _FAILED if self.failed else _STOPS if getattr(model, "stop_training", False) else _GOES_ON
        rates = self._learning_rates(model)
        maxima = self._meet_writers(model, state, [0, 1])
        if maxima[0] == _FAILED:
            failure, self._failure = self._failure, None
            collectives.agree_on_failure(failure)
        if maxima[0] == _STOPS:
            model.stop_training = True
        highest, lowest = maxima[1 : len(rates) + 1], -maxima[len(rates) + 1 :]
        if not np.array_equal(highest, lowest):
            weights.broadcast(rates)
            self._warn("the learning rate")

    def _learning_rates(self, model: Any) -> list[Any]:
        """The variables of the learning rates. Within an epoch they are those of its beginning: the traced step uses these."""
        if self._rates is None:
            self._rates = adapter.learning_rates(model)
        return self._rates

    @contextmanager
    def meeting(self, model: Any) -> Iterator[None]:
        """The ranks meet in this context. If they do not, a callback has begun a collective call on some of them only."""
        try:
            yield
        except MismatchError as error:
            failure, self._failure = self._failure, None
            if failure is not None:  # that call has failed already, and says more
                raise failure from error
            text = f"{error}. A callback has begun a collective call that callbacks of other ranks have not"
            if any(adapter.is_slot(variable) for variable in adapter.optimizer_variables(model)):
                text += (
                    ", such as reading the optimizer's state with shard_optimizer=True. A callback of the master's may read "
                    "it, given to fit as tnt.callbacks.Callback(callback)"
                )
            raise MismatchError(text) from error

    def _take_masters_state(self, model: Any) -> None:
        """Takes the weights, the optimizer's state and the initial epoch that the master's callback restored."""
        if self._is_whole:
            weights.broadcast([*adapter.weights(model), *adapter.whole_optimizer_variables(model)])
        if self._is_same:
            weights.broadcast(random_states(model))
        else:
            accumulation.clear_on_other_ranks(model)
        adapter.share_initial_epoch(model, lambda numbers: [int(number) for number in collectives.broadcast(numbers)])

    def _take_masters_weights(self, model: Any) -> None:
        variables = adapter.weights(model)
        if weights.differing(variables):
            weights.broadcast(variables)
            self._warn("the weights")

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            runtime.logger.warning("a callback has changed %s on some ranks only: all ranks take the master's", what)


def _padded(data: bytes, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(data[:size].ljust(size, b"\0"), np.uint8)


class BeforeCallbacks(keras.callbacks.Callback):  # type: ignore[misc]
    """Stands before the callbacks that may change weights at the end of an epoch."""

    def __init__(self, agreement: Agreement) -> None:
        super().__init__()
        self._agreement = agreement

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._agreement.check_epoch(self.model)


class AfterCallbacks(keras.callbacks.Callback):  # type: ignore[misc]
    """Stands after all callbacks whose ranks are to agree."""

    def __init__(self, agreement: Agreement) -> None:
        super().__init__()
        self._agreement = agreement


def _agreeing(hook: str) -> Callable[..., None]:
    def agree(self: AfterCallbacks, *args: Any, **kwargs: Any) -> None:
        self._agreement.agree(hook, self.model)

    return agree


for _hook in (*BATCH_HOOKS, *OUTER_HOOKS):
    setattr(AfterCallbacks, _hook, _agreeing(_hook))
