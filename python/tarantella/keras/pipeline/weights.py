"""The variables of a pipeline: each rank holds those of its stages, and all of them come together for a file."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, deferred
from tarantella.keras.reduction import weights
from tarantella.keras.reproducible import shard_state
from tarantella.keras.step.patch import patched


class Holdings:
    """Which rank holds which variable of a model.

    Args:
        by_rank: for each stage its rank within a pipeline and its variables. The first rank of a variable is its owner. In the
            first replica it is that in the job.
        position: this rank within its pipeline.
    """

    def __init__(self, by_rank: Sequence[tuple[int, Sequence[Any]]], position: int) -> None:
        self._owners: dict[int, int] = {}
        for rank, variables in by_rank:
            for variable in variables:
                self._owners.setdefault(id(variable), rank)
        self._variables = list({id(v): v for _, variables in by_rank for v in variables}.values())
        self._held_ids = {id(v) for rank, variables in by_rank if rank == position for v in variables}
        self.is_released = False

    def is_here(self, variable: Any) -> bool:
        """Whether this rank has the value of a variable. One that is in no stage is on all."""
        return not self.is_released or id(variable) in self._held_ids or id(variable) not in self._owners

    def _variables_elsewhere(self) -> list[Any]:
        return [v for v in self._variables if id(v) not in self._held_ids]

    def fill_deferred(self, model: Any) -> None:
        """Gives this rank's deferred weights, if there are any, the first values that they have on rank 0. Collective.

        Those of other ranks then need no memory any more.
        """
        number = sum(map(deferred.is_deferred, adapter.weights(model)))
        collectives.require_same("tnt.deferred_weights", **{"the number of deferred weights": number})
        if number == 0:
            return
        deferred.agree(self._variables)
        whole = [v for v in self._variables if not deferred.is_deferred(v)]
        weights.broadcast([*whole, *shard_state.random_states(model)])
        deferred.fill(v for v in self._variables if id(v) in self._held_ids)
        self.release()
        deferred.fill(v for v in adapter.weights(model) if self.is_here(v))  # those of no stage

    def release(self) -> None:
        """Frees the variables that other ranks hold."""
        for variable in self._variables_elsewhere():
            adapter.release(variable)
        self.is_released = True

    def assigning_own(self) -> AbstractContextManager[None]:
        """The context in which variables that other ranks hold take no values."""
        return patched(lambda: [(v, "assign", _ignore) for v in self._variables_elsewhere()])

    def value(self, variable: Any) -> NDArray[Any]:
        """The value of a variable, from its owner. Collective."""
        return from_owner(variable, self.owner(variable))

    def owner(self, variable: Any) -> int:
        """The first rank that holds a variable."""
        return self._owners.get(id(variable), 0)

    @contextmanager
    def together(self, here: bool) -> Iterator[None]:
        """In this context all variables have their values on the ranks where `here` is true. Collective.

        They come one by one: no rank holds a second copy.
        """
        if not self.is_released:
            yield
            return
        for variable in self._variables:
            value = self.value(variable)
            if here and id(variable) not in self._held_ids:
                adapter.refill(variable, value)
        try:
            yield
        finally:
            if here:
                self.release()


def _ignore(value: Any) -> None:
    """Takes the place of a variable's `assign`."""


def from_owner(variable: Any, owner: int) -> NDArray[Any]:
    """The value of a variable that one rank holds. Collective."""
    inner = adapter.unwrap(variable)
    own = inner.numpy() if runtime.get_rank() == owner else np.zeros(inner.shape, inner.dtype.as_numpy_dtype)
    return collectives.broadcast(own, owner)


# -------------------------------------------------------------------------------------------------------- optimizers


def optimizer_for(optimizer: Any, variables: Sequence[Any]) -> Any:
    """An optimizer like this one, with the state of these variables only. This one's state is taken over, if it has any."""
    new = optimizer.__class__.from_config(optimizer.get_config())
    adapter.build_optimizer(new, variables)
    before = by_key(optimizer)
    for path, variable in by_key(new).items():
        if path in before:
            adapter.unwrap(variable).assign(adapter.unwrap(before[path]))
    return new


def whole_optimizer(optimizer: Any, variables: Sequence[Any], here: bool, ranks: Sequence[int]) -> Any:
    """The optimizer of all ranks' variables, on the ranks where `here` is true; this rank's own elsewhere. Collective.

    ranks: those whose optimizers have the states of all variables.
    """
    own = by_key(optimizer)
    whole = optimizer.__class__.from_config(optimizer.get_config()) if here else None
    if whole is not None:
        adapter.build_optimizer(whole, variables)
    targets = {} if whole is None else by_key(whole)
    for owner in ranks:
        for path in collectives.broadcast_object(sorted(own), owner):
            value = collectives.broadcast_object(
                adapter.unwrap(own[path]).numpy() if owner == runtime.get_rank() else None, owner
            )
            if path in targets:
                adapter.unwrap(targets[path]).assign(value)
    return optimizer if whole is None else whole


def by_key(optimizer: Any) -> dict[str, Any]:
    """The optimizer's variables by their keys, which contain the paths of the trained variables."""
    found: dict[str, Any] = {}
    variables = list(optimizer.variables)
    for variable, key in zip(variables, weights.state_keys([adapter.path(v) for v in variables]), strict=True):
        if key in found:
            raise UnsupportedError(
                f"two states of {type(optimizer).__name__} are named {adapter.path(variable)}: give the model's layers names "
                "of their own"
            )
        found[key] = variable
    return found
