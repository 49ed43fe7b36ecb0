"""The variables of the model in a checkpoint: collected as one device would have them, and restored on all ranks.

In the middle of an epoch each rank has a part of its own of some: of BatchNormalization's moving averages, whose mean over
ranks counts, and of metrics' states and the gradients that an optimizer accumulates, which add up.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarantella import collectives, generations, runtime
from tarantella.keras import adapter
from tarantella.keras.checkpoint import parts
from tarantella.keras.reduction import weights
from tarantella.keras.sharding.weights import bytes_of, owners_of
from tarantella.keras.step import accumulation, moving_statistics

Stored = dict[str, list[dict[str, Any]]]

_COMMON_SEED = "common seed"


class Description(NamedTuple):
    """What a variable is, without its value."""

    path: str
    shape: tuple[int, ...]
    dtype: str


class ModelState:
    """The variables of a model that every rank holds.

    Args:
        hooks: the model's; None on one rank.
    """

    def __init__(self, model: Any, hooks: Any) -> None:
        self._model = model
        is_same = hooks is None or getattr(hooks, "reproducible", False)
        # whether ranks have parts of their own within an epoch; one rank of an elastic job may not stay alone
        self._per_rank = (runtime.get_size() > 1 or generations.is_elastic()) and not is_same

    def collect(self) -> Stored:
        return collect(self._model, self._per_rank)

    def collect_part(self) -> tuple[dict[str, list[dict[str, Any]]], list[NDArray[Any]]]:
        return collect_part(self._model, self._per_rank)

    def difference(self, stored: Stored | None, common_seed: bool) -> str | None:
        """See `difference`; None on ranks other than 0. Collective."""
        return None if stored is None else difference(self._model, stored, common_seed)

    def restore(self, stored: Stored | None, common_seed: bool) -> None:
        restore(self._model, stored, common_seed, self._per_rank)


def collect(model: Any, per_rank: bool) -> Stored:
    """Copies of everything that training changes in the model. Collective if ranks have parts of their own.

    State that each rank holds a part of is copied on the master alone, variable by variable.
    """
    groups = groups_of(model)
    combined = _combined_values(model, groups) if per_rank else {}

    def value(variable: Any) -> Any:
        found = combined.get(id(variable))
        return _value(variable) if found is None else found

    return {name: [{"path": adapter.path(v), "value": value(v)} for v in variables] for name, variables in groups.items()}


def collect_part(model: Any, per_rank: bool) -> tuple[dict[str, list[dict[str, Any]]], list[NDArray[Any]]]:
    """What `parts.divided` gives: each rank has its own state, and a share of what all ranks hold, by bytes. Collective."""
    groups = groups_of(model)
    combined = _combined_values(model, groups) if per_rank else {}
    whole = [v for variables in groups.values() for v in variables if not adapter.is_slot(v)]
    owners = owners_of([bytes_of(v) for v in whole], runtime.get_size())
    rank_of = {id(v): owner for v, owner in zip(whole, owners, strict=True)}

    def held(variable: Any) -> parts.Held:
        if adapter.is_slot(variable):
            return parts.Held(*described(variable), variable._tnt_owner, lambda: np.array(variable.own_value()))
        found = combined.get(id(variable))
        return parts.Held(*described(variable), rank_of[id(variable)], lambda: copy_of(variable) if found is None else found)

    return parts.divided({name: [held(v) for v in variables] for name, variables in groups.items()})


def _combined_values(model: Any, groups: dict[str, list[Any]]) -> dict[int, Any]:
    """The values of variables of which each rank has a part of its own, by their ids. Collective."""
    averaged = adapter.moving_statistics(model)
    found: dict[int, Any] = {id(averaged[index]): mean for index, mean in weights.means(averaged).items()}
    summed = _summed(model, groups)
    totals = collectives.all_reduce_each([copy_of(variable) for variable in summed])
    found.update((id(variable), total) for variable, total in zip(summed, totals, strict=True))
    return found


def restore(model: Any, stored: Stored | None, common_seed: bool, per_rank: bool) -> None:
    """Gives the model on all ranks the values that rank 0 has read. Collective on several ranks.

    Args:
        stored: None on ranks other than 0.
        common_seed: whether the state of Keras' common random generator was stored.
    """
    groups = groups_of(model, common_seed)
    if stored is not None:
        stored = in_order(groups, stored)
        for name, variables in groups.items():
            for variable, item in zip(variables, stored.get(name, ()), strict=True):
                if not adapter.is_slot(variable):
                    adapter.unwrap(variable).assign(np.asarray(item["value"]))
    if runtime.get_size() == 1:
        return
    weights.broadcast([v for variables in groups.values() for v in variables if not adapter.is_slot(v)])
    for name, variables in groups.items():
        for place, variable in enumerate(variables):
            if adapter.is_slot(variable):
                variable.take(None if stored is None else np.asarray(stored[name][place]["value"]))
    if per_rank and not runtime.is_master_rank():
        for variable in _summed(model, groups):
            inner = adapter.unwrap(variable)
            inner.assign(np.zeros(inner.shape, inner.dtype.as_numpy_dtype))


def difference(model: Any, stored: Stored, common_seed: bool) -> str | None:
    """How the model differs from the stored one, as the first half of a message; None if it fits.

    common_seed: as for `restore`.
    """
    groups = groups_of(model, common_seed)
    stored = in_order(groups, stored)
    for name, variables in groups.items():
        found = difference_of_group(name, [described(variable) for variable in variables], stored.get(name, []))
        if found is not None:
            return found
    return None


def in_order(groups: dict[str, list[Any]], stored: Stored) -> Stored:
    """The same, with the state of the optimizers in the order of the model's: ranks that wrote parts may have another one."""
    model_descriptions = weights.state_keys([adapter.path(v) for v in groups["optimizer"]])
    items = stored.get("optimizer", [])
    by_key = dict(zip(weights.state_keys([item["path"] for item in items]), items, strict=True))
    if len(by_key) != len(items) or by_key.keys() != set(model_descriptions):
        return stored
    return {**stored, "optimizer": [by_key[key] for key in model_descriptions]}


def described(variable: Any) -> Description:
    """The variable's path, shape and type."""
    return Description(adapter.path(variable), tuple(variable.shape), adapter.dtype_of(variable))


def difference_of_group(name: str, model_descriptions: Sequence[Description], stored: Sequence[dict[str, Any]]) -> str | None:
    """How a group's variables differ from the stored ones, in their order; None if they fit."""
    if len(stored) != len(model_descriptions):
        return f"the model has {len(model_descriptions)} variables of {name}, and the checkpoint {len(stored)}"
    for (path, shape, dtype), item in zip(model_descriptions, stored, strict=True):
        value = item["value"]
        if shape != value.shape or dtype != value.dtype.name:
            return (
                f"{path} of the model is of shape {shape} and type {dtype}, and {item['path']} of the checkpoint of shape "
                f"{value.shape} and type {value.dtype.name}"
            )
    return None


def groups_of(model: Any, common_seed: bool = False) -> dict[str, list[Any]]:
    """Each variable once. common_seed: Keras' common random generator is made if it is not in use yet."""
    found = {
        "weights": adapter.weights(model),
        "optimizer": adapter.optimizer_variables(model),
        "metrics": adapter.metric_variables(model),
        "seeds": adapter.seed_variables(model),
        _COMMON_SEED: adapter.common_seed_variables(make=common_seed),
        "counters": adapter.step_counters(model),
        "attributes": [*moving_statistics.attributes(model), *moving_statistics.attributes_of_optimizers(model)],
    }
    seen: set[int] = set()
    groups: dict[str, list[Any]] = {}
    for name, variables in found.items():
        groups[name] = [variable for variable in variables if id(variable) not in seen]
        seen.update(id(variable) for variable in variables)
    return groups


def _summed(model: Any, groups: dict[str, list[Any]]) -> Sequence[Any]:
    accumulators = {id(accumulator) for accumulator in accumulation.accumulators(model)}
    whole = [variable for variable in groups["optimizer"] if not adapter.is_slot(variable)]
    return [*groups["metrics"], *(v for v in whole if id(adapter.unwrap(v)) in accumulators)]


def _value(variable: Any) -> NDArray[Any] | None:
    if adapter.is_slot(variable):
        gathered: NDArray[Any] = variable.numpy()
        return gathered if runtime.is_master_rank() else None
    return copy_of(variable)


def copy_of(variable: Any) -> NDArray[Any]:
    """A copy of the value of a variable that this rank holds."""
    value: NDArray[Any] = np.asarray(adapter.unwrap(variable).numpy())
    return value
