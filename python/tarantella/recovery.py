"""A function of the script that is called again when ranks were lost, from the state that was committed last.

The launcher forms the generations of an elastic job (`generations.py`). Each rank keeps its last commit. In a new generation
all get the state of the rank that has committed most often: commits are made in the same order on all ranks, and where one was
made the state is the same on all of them. A newcomer joins where rank 0 commits, which then makes all ranks leave the job.

Nothing here imports TensorFlow. `keras/elastic/committed.py` has states with variables, and `tnt.elastic`.
"""

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tarantella import collectives, generations, runtime, variables
from tarantella.errors import AbortedError, UnsupportedError

_NONE = -1
"""The commits of a rank that has no state of the training yet: a newcomer."""
_JOINING = "ranks join"
_running: "_Loop | None" = None


class State:
    """What training continues from. Subclasses say how it is kept, brought back, and given to all ranks."""

    commits = 0
    """How often it was committed since the function was called."""

    def commit(self) -> None:
        """Keeps the state as it is: training continues from here when ranks are lost, and newcomers join here.

        Call it at the same places on all ranks, where the state is the same on all of them: after a step.

        Raises:
            UnsupportedError: the job is elastic, and the optimizer has gradients that it has not applied yet.
        """
        self.refuse_parts()
        self.save()
        self.commits += 1
        self.let_in()

    def is_whole(self) -> bool:
        """Whether ranks hold no gradients of their own that have not been applied yet: a lost rank would take them along."""
        return True

    def refuse_parts(self) -> None:
        """Raises UnsupportedError where a commit may be used, and the state is not whole."""
        if not self.is_whole() and (generations.is_elastic() or variables.COMMITS in os.environ):
            raise UnsupportedError(
                "commit: each rank holds gradients that it has added up and not applied yet, which would be lost with it. "
                "Commit after a step that applies them: after each k-th, where the optimizer adds up those of k steps"
            )

    def let_in(self) -> None:
        """Lets newcomers join, if any wait. Raises AbortedError if so: the function is called again, on all ranks."""
        if _running is not None and self.is_whole() and _running.is_asked():
            self.save()
            self.commits += 1
            runtime.world().abort(_JOINING)
            raise AbortedError(_JOINING)

    def save(self) -> None:
        """Keeps a copy in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the copy."""
        raise NotImplementedError

    def sync(self, root: int = 0) -> None:
        """Gives all ranks the state of root, and saves it. Collective."""
        raise NotImplementedError

    def described(self) -> Any:
        """What must be the same on a newcomer, as `collectives.broadcast_object` takes it."""
        return None

    def on_reset(self) -> None:
        """Is called on each rank of a new generation but newcomers, before `sync`."""


class Values(State):
    """Values of a script, as attributes.

    Args:
        values: the attributes and their first values.
    """

    _saved_state: Any = None

    def __init__(self, **values: Any) -> None:
        self._saved_state = copy.deepcopy(values)
        for name, value in values.items():
            setattr(self, name, value)

    def save(self) -> None:
        self._saved_state = copy.deepcopy(self._values())

    def restore(self) -> None:
        self.set_values(copy.deepcopy(self._saved_state))

    def sync(self, root: int = 0) -> None:
        if self._saved_state:
            self.set_values(self.broadcast(self._values(), root))
        self.save()

    def described(self) -> Any:
        return sorted(self._saved_state)

    def broadcast(self, values: dict[str, Any], root: int) -> Any:
        """Root's values. Collective."""
        return collectives.broadcast_object(values, root)

    def set_values(self, values: dict[str, Any]) -> None:
        """Gives all of the attributes these values."""
        if set(values) != set(self._saved_state):
            raise ValueError(
                f"the commit has the values {sorted(values)}, this script's state has {sorted(self._saved_state)}: all ranks, "
                "and a restart, need the same"
            )
        for name, value in values.items():
            setattr(self, name, value)

    def is_value(self, name: str) -> bool:
        """Whether the attribute is one of the values. While they are not known, each may be."""
        return self._saved_state is None or name in self._saved_state

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}


def run(state: State, function: Callable[[], Any], renew: Callable[[], None] = lambda: None) -> Any:
    """Calls the function, with the state the same on all ranks; in an elastic job again, whenever ranks were lost or join.

    Collective.

    Args:
        renew: brings up to date what depends on the ranks. Called first in each new generation, on newcomers as well.

    Raises:
        UnsupportedError: another function is running in this way. Errors of the function, if no rank was lost.
    """
    global _running
    if not generations.is_elastic():
        state.sync()
        return function()
    refuse("an elastic function")
    _running = _Loop(state, renew)
    try:
        return _running.run(function)
    finally:
        _running.close()
        _running = None


def is_running() -> bool:
    """Whether this is inside of a function that is called again when ranks are lost."""
    return _running is not None


def refuse(what: str) -> None:
    """Raises UnsupportedError inside of a function that is called again when ranks are lost. what: cannot be called there."""
    if _running is not None:
        raise UnsupportedError(
            f"--elastic: {what} was called inside of a function of tnt.elastic.run or hvd.elastic.run, which a newcomer could "
            "not follow: call it before or after. Inside, call the Keras model, and add up what ranks find by tnt.all_reduce"
        )


class _Loop:
    """One call of `run` in an elastic job."""

    def __init__(self, state: State, renew: Callable[[], None]) -> None:
        self._state, self._renew = state, renew
        self._training = generations.begin_training()
        self._door = generations.Door()
        self._is_left_open = False  # whether this rank, the master, leaves the job so that newcomers can join
        self._result: Any = None

    def close(self) -> None:
        self._door.close()

    def _position(self) -> generations.Position:
        return generations.Position(0, self._state.commits, self._training)

    def is_asked(self) -> bool:
        """Whether this rank is the master, and a newcomer is to be let in now."""
        is_asked = runtime.is_master_rank() and self._door.is_knocked_at(self._position())
        self._is_left_open |= is_asked
        return is_asked

    def run(self, function: Callable[[], Any]) -> Any:
        self._state.save()
        self._state.commits = 0
        is_first = True
        if generations.is_newcomer():
            self._state.commits, is_first = _NONE, False
            self._join_next(AbortedError("the job ended before this rank could join it"))
        while True:
            try:
                if not is_first:
                    self._renew()
                    self._reset()
                if self._is_over(is_first):
                    return self._result
                self._result = function()
                self._state.save()
                self._state.commits += 1
                collectives.barrier()  # a rank that goes on has seen all of them come to the end
                return self._result
            except Exception as error:
                if not any(map(generations.is_loss, _chain(error))):
                    raise
                self._state.restore()
                self._join_next(error)
                is_first = False

    def _reset(self) -> None:
        if self._state.commits != _NONE:
            self._state.on_reset()

    def _join_next(self, error: Exception) -> None:
        """Joins the next generation. Raises the error if there is none."""
        meeting, self._is_left_open = self._position() if self._is_left_open else None, False
        while (has_joined := generations.join_next(meeting)) is None:  # nobody waits for this newcomer
            found = generations.position_of_others(to_meet=True)
            if found is None:
                raise error
            if found.training != self._training:
                raise generations.refusal_of_training(found.training)
        if not has_joined:
            raise error

    def _is_over(self, is_first: bool) -> bool:
        """Gives all ranks the same state. Collective. Returns whether others have gone on: then all had come to the end."""
        generations.takes_part_late()  # this brings all ranks together, wherever they are
        while True:
            own = [self._training, self._state.commits, 0]  # three, so that no collective of `fit` is taken for this one
            trainings, commits, _ = collectives.all_gather(np.array(own)).T
            if trainings.max() > self._training:
                return True
            if trainings.min() == self._training:
                break
        if commits.max() == _NONE:
            raise UnsupportedError("all ranks were lost that had the state of the training")
        root = int(np.argmax(commits))
        if commits.min() == _NONE:
            self._take_in(collectives.broadcast_object(self._state.described(), root))
        self._state.sync(root)
        self._state.commits = int(commits.max())
        if not is_first:
            runtime.logger.warning("the training goes on; ranks by now: %d", runtime.get_size())
        return False

    def _take_in(self, described: Any) -> None:
        """This rank becomes one of the others, if it was a newcomer. described: their state."""
        if self._state.commits != _NONE:
            return
        if described != self._state.described():
            raise generations.refusal("its state has other values or variables, or variables of other shapes or types")
        generations.has_joined()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those from which it was made. Keras cuts off its causes, so the contexts count."""
    while error is not None:
        yield error
        error = error.__context__
