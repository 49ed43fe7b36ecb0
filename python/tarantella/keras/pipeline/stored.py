"""The variables of a pipeline in a checkpoint: collected as one device would have them, compared, and put back."""

import functools
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.checkpoint import parts, state
from tarantella.keras.checkpoint.state import Description, Stored
from tarantella.keras.pipeline.gathering import OPTIMIZER, Gathering, restore
from tarantella.keras.pipeline.weights import Holdings, by_key
from tarantella.keras.reduction.weights import state_keys


class PipelineState:
    """As `tarantella.keras.checkpoint.state.ModelState`, for a model of which each rank holds some stages.

    Args:
        model: the Keras model.
        ranks: those whose optimizers have the states of all variables.
    """

    def __init__(self, model: Any, holdings: Holdings, gathering: Gathering, ranks: Sequence[int]) -> None:
        self._model, self._holdings, self._gathering, self._ranks = model, holdings, gathering, ranks

    def collect(self) -> Stored:
        """Copies of all variables, on the master. Collective."""
        with self._gathering.together(runtime.is_master_rank()):
            return state.collect(self._model, per_rank=False)

    def collect_part(self) -> tuple[dict[str, list[dict[str, Any]]], list[NDArray[Any]]]:
        """What `parts.divided` gives: each rank has the variables that it holds, of those in several the first. Collective."""
        groups = state.groups_of(self._model)
        own = by_key(adapter.optimizer_of(self._model))
        optimizer_variables: list[parts.Held] = []
        for key, (description, rank) in sorted(self._optimizer_variables().items()):
            optimizer_variables.append(parts.Held(*description, rank, functools.partial(state.copy_of, own.get(key))))
        held = {
            name: [parts.Held(*state.described(v), self._holdings.owner(v), functools.partial(state.copy_of, v)) for v in group]
            for name, group in groups.items()
        }
        return parts.divided({**held, OPTIMIZER: optimizer_variables})

    def difference(self, stored: Stored | None, common_seed: bool) -> str | None:
        """How the model differs from the stored one, on the master; None if it fits. Collective."""
        optimizer_variables = self._optimizer_variables()
        if stored is None:
            return None
        for name, variables in state.groups_of(self._model, common_seed).items():
            described, items = [state.described(v) for v in variables], stored.get(name, [])
            if name == OPTIMIZER:
                by_stored_key = dict(zip(state_keys([item["path"] for item in items]), items, strict=True))
                items = [by_stored_key[key] for key in sorted(by_stored_key)]
                described = [optimizer_variables[key][0] for key in sorted(optimizer_variables)]
            found = state.difference_of_group(name, described, items)
            if found is not None:
                return found
        return None

    def _optimizer_variables(self) -> dict[str, tuple[Description, int]]:
        """The variables of the ranks' optimizers, by their keys, each with the first rank that has it. Collective."""
        own = {key: state.described(v) for key, v in by_key(adapter.optimizer_of(self._model)).items()}
        found: dict[str, tuple[Description, int]] = {}
        for owner in self._ranks:
            for key, name, shape, dtype in collectives.broadcast_object(
                [[k, *description] for k, description in own.items()], owner
            ):
                found.setdefault(key, (state.Description(name, tuple(shape), dtype), owner))
        return found

    def restore(self, stored: Stored | None, common_seed: bool) -> None:
        """See `gathering.restore`."""
        restore(self._model, self._holdings, stored, common_seed)
