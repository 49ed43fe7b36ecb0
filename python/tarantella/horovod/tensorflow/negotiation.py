"""Eager collectives of several threads: ranks may make them in different orders.

One call at a time goes to the other ranks. They compare it with theirs before anything is sent. If it differs, and only then,
the ranks tell each other which calls wait on each of them, and make those that wait on all. So a program of one thread pays
nothing for it. Inside a `tf.function` the order is that of the graph, and none of this runs.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime, settings
from tarantella._native import Dtype
from tarantella.errors import DeadlineError, InvalidArgumentError, MismatchError
from tarantella.horovod.common.process_sets import ProcessSet

_BY_ROWS = ("allgather", "alltoall", "reducescatter")
_PAUSE = 0.001
"""Seconds between two looks at what other threads have called meanwhile."""


class _Call:
    """A call of a thread. Making one is a part of each eager call's cost, so its texts are made when they are needed."""

    __slots__ = ("action", "done", "error", "kind", "name", "result", "tensor", "thread")

    def __init__(self, kind: str, name: str | None, tensor: Any, action: Callable[[], Any]) -> None:
        self.kind, self.name, self.tensor, self.action = kind, name, tensor, action
        self.thread = threading.get_ident()
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def key(self) -> str:
        """By it a call finds its counterparts on the other ranks."""
        if self.name:
            return f"{self.kind} of {self.name!r}"
        shape = [None, *self.tensor.shape[1:]] if self.kind in _BY_ROWS else list(self.tensor.shape)
        return f"{self.kind} of an unnamed {self.tensor.dtype.name} tensor of shape {shape}"

    def run(self) -> None:
        try:
            self.result = self.action()
        except Exception as error:
            self.error = error
        self.done = True

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


def eager(kind: str, name: str | None, tensor: Any, process_set: ProcessSet, action: Callable[[], Any]) -> Any:
    """What the action returns, which is one collective on the process set.

    Args:
        kind: the collective, for the other ranks and for errors.
        name: the tensor's. Without one its type and shape tell it from others.

    Raises:
        InvalidArgumentError: another thread has not finished its call with this name. MismatchError: the ranks call different
        things. DeadlineError: no call waited on all ranks for TNT_TIMEOUT seconds.
    """
    if not tf.executing_eagerly():
        return action()
    return (_queues.get(process_set.process_set_id) or _queue(process_set)).call(_Call(kind, name, tensor, action))


class _Queue:
    """The calls of this rank on one process set."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._group = process_set.group()
        self._wire = threading.RLock()  # held by the thread whose call goes to the other ranks
        self._mutex = threading.Lock()
        self._calls: list[_Call] = []
        self._threads: set[int] = set()

    def call(self, mine: _Call) -> Any:
        with self._mutex:
            if self._calls and mine.name and any(other.key == mine.key for other in self._calls):
                raise InvalidArgumentError(
                    f"hvd.{mine.key}: another thread of this rank has not finished a call with this name: give each its own"
                )
            self._calls.append(mine)
            self._threads.add(mine.thread)
        try:
            with self._wire:
                while not mine.done:
                    try:
                        return mine.action()
                    except MismatchError as error:
                        self._negotiate(mine, error)
                    except DeadlineError as error:
                        raise DeadlineError(f"hvd.{mine.key}: {error}") from error
                return mine.outcome()
        finally:
            with self._mutex:
                self._calls.remove(mine)

    def _negotiate(self, mine: _Call, mismatch: MismatchError) -> None:
        """Makes the calls that wait on all ranks. Collective: all ranks of the process set have seen the mismatch.

        Ranks leave together, as soon as they have made any: a rank's next call may depend on them.
        """
        deadline = time.monotonic() + settings.timeout()
        while True:
            each = self._exchange({"waiting": self._waiting(mine), "others": self._other_threads()})
            common = set(each[0]["waiting"]).intersection(*(one["waiting"] for one in each))
            for key in sorted(common):
                self._first(key).run()
            if common:
                return
            if not any(one["others"] for one in each):
                raise mismatch
            if any(self._exchange(time.monotonic() > deadline)):
                raise DeadlineError(self._described([one["waiting"] for one in each]))
            time.sleep(_PAUSE)

    def _waiting(self, mine: _Call) -> list[str]:
        with self._mutex:
            return [mine.key, *(call.key for call in self._calls if not call.done and call is not mine)]

    def _first(self, key: str) -> _Call:
        with self._mutex:
            return next(call for call in self._calls if call.key == key and not call.done)

    def _other_threads(self) -> bool:
        """Whether a thread that does not wait here may call something yet."""
        with self._mutex:
            waiting = {call.thread for call in self._calls}
            known = set(self._threads)
        return any(
            thread.ident not in waiting and (thread.ident in known or not thread.daemon) for thread in threading.enumerate()
        )

    def _exchange(self, mine: Any) -> list[Any]:
        """What each rank has given, by rank. Collective."""
        communicator = self._group.communicator("negotiation")
        data = np.frombuffer(json.dumps(mine).encode(), np.uint8)
        sizes = np.zeros(self._group.size, np.int64)
        communicator.all_gather(np.array([len(data)], np.int64).view(np.uint8), sizes.view(np.uint8), Dtype.uint8)
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(data)] = data
        everything = np.zeros((self._group.size, len(padded)), np.uint8)
        communicator.all_gather(padded, everything.reshape(-1), Dtype.uint8)
        return [json.loads(one[:size].tobytes()) for one, size in zip(everything, sizes, strict=True)]

    def _described(self, waiting: list[list[str]]) -> str:
        ranks = self._group.group
        calls = "; ".join(f"rank {ranks[i]} waits in {', '.join(sorted(set(keys)))}" for i, keys in enumerate(waiting))
        return (
            f"no call waited on all ranks for {settings.timeout():g} s (TNT_TIMEOUT): {calls}. "
            "All ranks must make the same calls, and threads must not wait for each other in between"
        )


_queues: dict[int | None, _Queue] = {}
"""By the id of the process set, which no other gets."""
_guard = threading.Lock()
runtime.before_leaving(_queues.clear)


def _queue(process_set: ProcessSet) -> _Queue:
    process_set.group().to_group_rank(runtime.get_rank())  # or an error
    with _guard:
        return _queues.setdefault(process_set.process_set_id, _Queue(process_set))
