"""The optimizers of a model whose state is spread over ranks: the first stage of ZeRO.

Each trained variable has an owner. It holds the variable's state in the optimizer, updates the variable and sends the new
weights to all ranks. Everything else of the optimizer, such as its step count, is the same on all ranks.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tarantella import collectives
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.sharding.optimizer import ShardedOptimizer
from tarantella.keras.sharding.slots import SharedSlots
from tarantella.keras.step.patch import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.step.patch import Attribute


class ShardedOptimizers:
    """All optimizers of a compiled model on several ranks.

    Attributes:
        slots: their state.
    """

    def __init__(self, model: Any) -> None:
        self.slots = SharedSlots()
        self._model = model
        self._of: dict[int, ShardedOptimizer] = {}

    def _all(self) -> list[ShardedOptimizer]:
        return [self._sharded(optimizer) for optimizer in adapter.held_optimizers(self._model)]

    def _sharded(self, optimizer: Any) -> ShardedOptimizer:
        inner = adapter.optimizers_of(optimizer)[-1]
        if id(inner) not in self._of:
            self._of[id(inner)] = ShardedOptimizer(inner, self.slots)
        return self._of[id(inner)]

    def served(self) -> AbstractContextManager[None]:
        """The context in which the master may read and write state of other ranks, which answer until it leaves."""
        return self.slots.served()

    @contextmanager
    def building(self) -> Iterator[None]:
        """In this context the model's optimizers are built with this rank's part of their state.

        They update this part alone, as a step of the user's own is traced to build them.
        """
        patch = Patch([hook for sharded in self._all() for hook in sharded.hooks()])
        patch.apply()
        try:
            yield
        finally:
            patch.revert()

    def start(self) -> None:
        """The ranks have the same weights, and go on with one state of the optimizers, of which each has its part. Collective.

        Raises:
            MismatchError: ranks differ in which of them owns what.
        """
        for number, sharded in enumerate(self._all()):
            sharded.share_out()
            sharded.begin_as_weights()
            collectives.require_same("shard_optimizer", **{f"the owners of optimizer {number}": sharded.digest()})

    def hooks(self, optimizer: Any, hooks: Sequence[Attribute]) -> list[Attribute]:
        """The hooks of a step for one of the optimizers, which updates its part and gathers the weights.

        Args:
            hooks: those by which it gets reduced gradients.
        """
        sharded = self._sharded(optimizer)
        apply_hook = adapter.optimizer_hook()

        def gathering(owner: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            return sharded.gathering(method) if owner is optimizer and name == apply_hook else method

        return [*((owner, name, gathering(owner, name, method)) for owner, name, method in hooks), *sharded.hooks()]


def refuse_shared_out(model: Any) -> None:
    """Raises if the model's optimizer is spread over ranks, and is to be trained as a whole."""
    for variable in adapter.optimizer_variables(model):
        if adapter.is_slot(variable):
            raise UnsupportedError(
                f"{adapter.path(variable)} is held by one rank alone, since the model was trained with shard_optimizer=True: "
                "go on with shard_optimizer=True, or save the model and load it again"
            )
