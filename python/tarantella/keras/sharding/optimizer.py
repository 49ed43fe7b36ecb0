"""One optimizer whose state is spread over ranks."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.reduction import collectives, graph_order
from tarantella.keras.sharding import trial
from tarantella.keras.sharding.slots import SharedSlots
from tarantella.keras.sharding.weights import WeightGather, owners_of
from tarantella.keras.step.patch import Attribute


class ShardedOptimizer:
    """An optimizer of which each rank holds a part of the state and updates its variables.

    Args:
        optimizer: the one that updates variables, without a LossScaleOptimizer around it.
        slots: gets its slots.

    Raises:
        UnsupportedError: no part of its variables can be updated alone.
    """

    def __init__(self, optimizer: Any, slots: SharedSlots) -> None:
        self.optimizer = optimizer
        self._slots = slots
        self._owners: list[int] = []  # of each trained variable
        self._begin_as_weights: list[tuple[Any, Any]] = []  # slots whose first value is that of a variable, and these
        self._gather: WeightGather | None = None
        self.owner_of_id: dict[int, int] = {}  # the owner of each trained variable, by the variable's id
        self._applied: list[Any] = []  # the variables whose gradients `apply` was given last
        self._has_updated = False  # whether the call of `apply` that is being traced or run has changed weights
        name = type(optimizer).__name__
        why = trial.uncuttable_because(optimizer)
        if why is not None:
            raise UnsupportedError(
                f"shard_optimizer: {name} cannot be spread over ranks, as {why}: train it without shard_optimizer"
            )

    # ------------------------------------------------------------------------------------------- the state

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the optimizer's state for these variables: that of this rank's part, and names for the rest."""
        if self.optimizer.built:
            return
        planned = self._plan(variables)
        owners = [None if slot.variable is None else self._owners[slot.variable] for slot in planned]
        made = adapter.build_slots(self.optimizer, variables, owners, self._slots)
        self._register(made)
        self._begin_as_weights = [
            (variable, variables[slot.variable])
            for variable, slot in zip(made, planned, strict=True)
            if slot.begins_as_variable and slot.variable is not None
        ]

    def share_out(self) -> None:
        """Spreads the state of an optimizer that was built in another way, such as from a file: each rank keeps its part."""
        if not self.optimizer.built or self._gather is not None:
            return
        planned = self._plan(adapter.variables_of_optimizer(self.optimizer))
        owners = [None if slot.variable is None else self._owners[slot.variable] for slot in planned]
        made = adapter.built_variables(self.optimizer, planned)
        pairs = [(variable, slot) for variable, slot in zip(made, planned, strict=True) if slot.variable is not None]
        if any(variable is None or tuple(variable.shape) != slot.shape for variable, slot in pairs):
            raise UnsupportedError(
                f"shard_optimizer: {type(self.optimizer).__name__} was built with other variables than it would make now: "
                "compile the model again"
            )
        held = [getattr(variable, "_tnt_owner", None) for variable in made]
        if not any(adapter.is_slot(variable) for variable in made):
            adapter.share_out(made, owners, self._slots)
        elif held != owners:
            raise UnsupportedError(
                f"shard_optimizer: the state of {type(self.optimizer).__name__} is spread over ranks by other bounds: compile "
                "the model again"
            )
        self._register(made)

    def _plan(self, variables: Sequence[Any]) -> list[Any]:
        planned: list[Any] = adapter.planned_slots(self.optimizer, variables)
        costs = [0] * len(variables)
        for slot in planned:
            if slot.variable is not None:
                costs[slot.variable] += slot.bytes
        if not any(costs):  # without state, the work of the update is shared
            costs = [int(tf.TensorShape(v.shape).num_elements() or 0) for v in variables]
        self._owners = owners_of(costs, runtime.get_size())
        self._gather = WeightGather(variables, self._owners)
        self.owner_of_id = {id(v): owner for v, owner in zip(variables, self._owners, strict=True)}
        shares = [sum(c for c, owner in zip(costs, self._owners, strict=True) if owner == r) for r in range(runtime.get_size())]
        runtime.logger.info(
            "shard_optimizer: %s: the ranks hold %s of %d bytes", type(self.optimizer).__name__, shares, sum(costs)
        )
        return planned

    def _register(self, made: Sequence[Any]) -> None:
        for variable in made:
            if adapter.is_slot(variable):
                self._slots.add(variable)

    def begin_as_weights(self) -> None:
        """Slots that begin as the weights get those that all ranks have by now."""
        for slot, variable in self._begin_as_weights:
            if slot.is_here:
                slot.assign_here(adapter.unwrap(variable).read_value())
        self._begin_as_weights = []

    def digest(self) -> int:
        """A number that is the same on ranks that have the same owners of the same variables."""
        text = json.dumps([type(self.optimizer).__name__, bool(self.optimizer.built), self._owners])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")

    # ------------------------------------------------------------------------------------------- the step

    def hooks(self) -> list[Attribute]:
        """Replacements of the optimizer's methods, by which it updates this rank's variables alone."""

        def is_own(index: int) -> bool:
            return self._owners[index] == runtime.get_rank()

        return [
            (self.optimizer, "build", self.build),
            *adapter.own_updates(self.optimizer, is_own, self._note_update),
            (self.optimizer, "finalize_variable_values", self._finalized(self.optimizer.finalize_variable_values)),
        ]

    def clipping(self) -> list[Attribute]:
        """Replacements by which `global_clipnorm` takes the norm of gradients that are on several ranks; none without it."""
        if not adapter.clips_by_norm_of_all(self.optimizer):
            return []
        return adapter.clipping_of_parts(self.optimizer, self._is_own, collectives.total)

    def finite_on_all_ranks(self, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A LossScaleOptimizer's `check_finite`, of gradients of which each rank has its own variables'."""

        def check_finite(grads: Any) -> Any:
            own = [g for g, v in zip(grads, self._applied, strict=True) if self._is_own(v)]
            finite = check(own) if own else tf.constant(True)
            return collectives.all_true(finite)

        return check_finite

    def _is_own(self, variable: Any) -> bool:
        return self.owner_of_id[id(variable)] == runtime.get_rank()

    def _note_update(self) -> None:
        self._has_updated = True

    def _finalized(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The end of `fit`, which may give the model the averages of its weights."""

        def finalize_variable_values(variables: Any) -> Any:
            result = original(variables)
            if adapter.has_averages(self.optimizer) and self._gather is not None:
                self._gather.gather()
            return result

        return finalize_variable_values

    def gathering(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """`apply` with reduced gradients, after which all ranks have the weights of their owners."""

        def apply_and_gather(grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
            self._has_updated = False
            known = trainable_variables is not None
            self._applied = list(trainable_variables if known else adapter.variables_of_optimizer(self.optimizer))
            accumulates = adapter.accumulating(self.optimizer) is not None and not adapter.overwrites_weights(self.optimizer)
            due = adapter.is_update_step(self.optimizer) if accumulates and self.optimizer.built else None
            with self._slots.stepping():
                result = apply(grads, trainable_variables, **kwargs)
            if self._has_updated and self._gather is not None:  # a shard of a reproducible step that is not the last has not
                self._gather_if(due, self._gather)
            return result

        return apply_and_gather

    def _gather_if(self, due: tf.Tensor | None, gather: WeightGather) -> None:
        if due is None:
            gather.gather()
            return

        def gathered() -> tf.Tensor:
            return tf.reduce_sum(gather.gather())

        with graph_order.after_last():
            done = tf.cond(due, gathered, lambda: tf.constant(0, tf.int64))
        graph_order.record([done])
