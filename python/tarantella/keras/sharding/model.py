"""The optimizers of a model whose state is spread over ranks: the first stage of ZeRO.

Each trained variable has an owner. It holds the variable's state in the optimizer, updates the variable and sends the new
weights to all ranks. Everything else of the optimizer, such as its step count, is the same on all ranks.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tarantella import collectives, settings
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.sharding.optimizer import ShardedOptimizer
from tarantella.keras.sharding.slots import SharedSlots
from tarantella.keras.step.patch import Attribute, patched


class ShardedOptimizers:
    """All optimizers of a compiled model on several ranks.

    Args:
        reproducible: whether optimizers that accumulate gradients accumulate reduced ones.

    Attributes:
        slots: their state.
    """

    def __init__(self, model: Any, reproducible: bool) -> None:
        self.slots = SharedSlots()
        self._model = model
        self._reproducible = reproducible
        self._of: dict[int, ShardedOptimizer] = {}

    def _all(self) -> list[ShardedOptimizer]:
        return [self._sharded(optimizer) for optimizer in adapter.held_optimizers(self._model)]

    def _sharded(self, optimizer: Any) -> ShardedOptimizer:
        inner = adapter.optimizers_of(optimizer)[-1]
        if id(inner) not in self._of:
            self._of[id(inner)] = ShardedOptimizer(inner, self.slots)
        return self._of[id(inner)]

    def owners_of(self, variables: Sequence[Any]) -> tuple[int, ...]:
        """For each variable, the rank that needs its reduced gradient; empty if all ranks need all of them."""
        if settings.fingerprint() is not None or any(self._needs_whole(o) for o in adapter.held_optimizers(self._model)):
            return ()
        known = {number: rank for sharded in self._all() for number, rank in sharded.owner_of_id.items()}
        owners = tuple(known.get(id(variable), -1) for variable in variables)
        return () if -1 in owners else owners

    def _needs_whole(self, optimizer: Any) -> bool:
        """Whether the optimizer keeps reduced gradients, or takes their norm in a branch of the graph."""
        scales, accumulates = len(adapter.optimizers_of(optimizer)) > 1, adapter.accumulating(optimizer) is not None
        clips = adapter.clips_by_norm_of_all(adapter.optimizers_of(optimizer)[-1])
        return (clips and (scales or accumulates)) or (accumulates and self._reproducible)

    def served(self) -> AbstractContextManager[None]:
        """The context in which the master may read and write state of other ranks, which answer until it leaves."""
        return self.slots.served()

    def building(self) -> AbstractContextManager[None]:
        """The context in which the model's optimizers are built with this rank's part of their state.

        They update this part alone, as a step of the user's own is traced to build them.
        """
        return patched(lambda: [hook for sharded in self._all() for hook in sharded.hooks()])

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

        found = [(owner, name, gathering(owner, name, method)) for owner, name, method in hooks]
        if self._needs_whole(optimizer):
            return [*found, *sharded.hooks()]
        if len(adapter.optimizers_of(optimizer)) > 1 and "check_finite" not in [name for _, name, _ in hooks]:
            found.append((optimizer, "check_finite", sharded.finite_on_all_ranks(optimizer.check_finite)))
        return [*found, *sharded.hooks(), *sharded.clipping()]


def refuse_shared_out(model: Any) -> None:
    """Raises if the model's optimizer is spread over ranks, and is to be trained as a whole."""
    for variable in adapter.optimizer_variables(model):
        if adapter.is_slot(variable):
            raise UnsupportedError(
                f"{adapter.path(variable)} is held by one rank alone, since the model was trained with shard_optimizer=True: "
                "go on with shard_optimizer=True, or save the model and load it again"
            )


class ServedCallbacks(adapter.Callback):
    """Runs callbacks of the master's; at the end of an epoch the other ranks answer them.

    Args:
        callbacks: none on other ranks.
        served: gives the context in which they answer.
    """

    def __init__(self, callbacks: Sequence[Any], served: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._callbacks = list(callbacks)
        self._served = served

    def on_train_begin(self, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for callback in self._callbacks:
            callback.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with self._served():
            for callback in self._callbacks:
                callback.on_epoch_end(epoch, logs)
