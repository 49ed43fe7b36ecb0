"""How a step makes what it keeps from step to step, such as a table of codes or a count, from a batch's samples.

The optimizer's variables, metrics and BatchNormalization's averages are not meant. What is a mean or a sum over the samples,
ranks bring together in each step (`step/kept_state.py`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.step import moving_statistics
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.trial.comparison import Kind, compared

_ROUNDING = 1e-6  # of the variable's value
_STEPS = {"train_step": "training", "test_step": "test", "predict_step": "prediction"}


def values(variables: Sequence[Any]) -> list[Any]:
    """The values now of what a step may keep."""
    return [adapter.unwrap(variable).numpy() for variable in variables]


@np.errstate(invalid="ignore")  # a state may begin with an infinite number
def kinds(
    before: Sequence[Any], whole: Sequence[Any], parts: Sequence[Sequence[Any]], weights: Sequence[float]
) -> dict[int, Kind]:
    """How changes by a whole are made of those by its parts, by place; nothing for what does not change."""
    found: dict[int, Kind] = {}
    for place, (old, new, *part_values) in enumerate(zip(before, whole, *parts, strict=True)):
        old, new, *part_values = (np.asarray(value, np.float64) for value in (old, new, *part_values))
        floor = _ROUNDING * max(float(np.linalg.norm(value)) for value in (old, new, *part_values))
        if max(float(np.linalg.norm(part - new)) for part in part_values) <= floor:
            if np.any(new != old):
                found[place] = Kind.ALIKE
            continue
        kind = compared(new - old, [part - old for part in part_values], weights, floor)
        if kind is not Kind.UNKNOWN:
            found[place] = kind
    return found


def settled(model: Any, kinds: LossKinds, found: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Notes for the steps which variables ranks bring together. Returns sentences about those that they cannot, by step.

    Args:
        found: the kind of each variable's changes, by the step and the variable's place.
    """
    variables, coupled = moving_statistics.kept(model), defaultdict(list)
    for (step, place), name in found.items():
        kind, variable = Kind[name], variables[place]
        if kind is Kind.COUPLED or (kind is Kind.MEAN and tf.as_dtype(adapter.dtype_of(variable)).is_integer):
            coupled[step].append(adapter.path(variable))
            continue
        brought = {Kind.MEAN: kinds.kept_means, Kind.SUM: kinds.kept_sums}.get(kind, kinds.kept_alike)
        brought[step, id(variable)] = variable
        if kind is not Kind.ALIKE:
            runtime.logger.info(
                "the %s step changes %s by %s of samples: ranks add it up", _STEPS[step], adapter.path(variable), kind.value
            )
    return {
        step: f"the {_STEPS[step]} step changes {', '.join(sorted(paths))} by the samples of a batch, neither by their mean "
        "nor by a sum"
        for step, paths in coupled.items()
    }
