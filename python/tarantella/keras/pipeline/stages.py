"""The stages of a model that the user asked for: the same on all ranks, by SplitLayers, by names, or by measured times."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.errors import InvalidArgumentError, MismatchError, TarantellaError
from tarantella.keras import adapter
from tarantella.keras.pipeline import costs, fusion
from tarantella.keras.pipeline.crossings import Kind
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.pipeline.options import PipelineOptions, stages_by_splits
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.pipeline.trace import Traced
from tarantella.pipeline_schedule import Schedule

_ROWS = 8  # samples with which layers are timed


def check_alike(model: Any, pipeline: PipelineOptions) -> None:
    """Raises MismatchError on all ranks if they have different models. Collective."""
    calls = adapter.layer_calls(adapter.layer_graph(model))
    own = [f"a pipeline with {pipeline}", *map(_described, calls), "the end of the model"]
    masters = collectives.broadcast_object(own)
    failure = None
    different = next((pair for pair in zip(own, masters, strict=False) if pair[0] != pair[1]), None)
    if different is not None:
        failure = MismatchError(
            f"the ranks have different models: rank {runtime.get_rank()} has {different[0]} where rank 0 has {different[1]}"
        )
    collectives.agree_on_failure(failure)


def stages_of_calls(
    model: Any, pipeline: PipelineOptions, x_spec: Any, tensors: dict[int, Traced]
) -> tuple[list[int], list[float]]:
    """The stage of each call, and the calls' times in the order of the stages."""
    stages = pipeline.stages
    calls = adapter.layer_calls(adapter.layer_graph(model))
    layers = costs.layers(model, x_spec, _ROWS, tensors)
    by_splits = stages_by_splits(calls)
    if max(by_splits) > 0:
        stage_of = by_splits
    else:
        begins = _named_begins(calls, pipeline.names) if pipeline.names else _best_begins(calls, layers, stages)
        if begins is None:
            raise InvalidArgumentError(
                f"{model.name!r} cannot be cut into {stages} stages, each with trained variables of its own: it has "
                f"{costs.max_stages(layers)} at most. Use pipeline_stages={costs.max_stages(layers)} or fewer"
            )
        stage_of = [sum(place >= begin for begin in begins) for place in range(len(calls))]
    if pipeline.reproducible:
        fusion.refuse_divided(calls, stage_of)
    return stage_of, [layers.times[place] for s in range(stages) for place in range(len(calls)) if stage_of[place] == s]


def _best_begins(calls: Sequence[Any], layers: costs.Layers, stages: int) -> list[int] | None:
    """The best partition that divides neither a trained variable's calls nor what TensorFlow computes as one, if it can be."""
    divided = fusion.places(calls)
    places = range(len(layers.is_allowed))
    fused_stay, whole = [i not in divided for i in places], layers.is_whole or [True for _ in places]
    for wishes in ([fused_stay, whole], [fused_stay], [whole], []):
        allowed = [all(here) for here in zip(layers.is_allowed, *wishes, strict=True)]
        begins = costs.best_partition(dataclasses.replace(layers, is_allowed=allowed), stages)
        if begins is not None:
            return begins
    return None


def _named_begins(calls: Sequence[Any], names: Sequence[str]) -> list[int]:
    places: dict[str, int] = {}
    for place, call in enumerate(calls):
        places.setdefault(call.operation.name, place)
    unknown = [name for name in names if name not in places]
    if unknown:
        raise InvalidArgumentError(f"pipeline_stages names {unknown[0]!r}, and the model has no such layer at its top level")
    begins = [places[name] for name in names]
    if begins != sorted(set(begins)) or begins[0] == 0:
        raise InvalidArgumentError(
            f"pipeline_stages is {list(names)}: name the layers with which the second and later stages "
            f"begin, in the order of the model: {', '.join(places)}"
        )
    return begins


def _described(call: Any) -> str:
    operation = call.operation
    shapes = [tuple(v.shape) for v in getattr(operation, "variables", [])]
    return f"{operation.name} ({type(operation).__name__}) with variables of shapes {shapes}"


def agreed(find: Callable[[], Any]) -> Any:
    """What rank 0 finds, or its error on all ranks. Collective."""
    found: Any = None
    failure: Exception | None = None
    if runtime.is_master_rank():
        try:
            found = find()
        except TarantellaError as error:
            failure = error
    collectives.agree_on_failure(failure)
    return collectives.broadcast_object(found)


def table(cut: Cut, schedule: Schedule, times: Sequence[float], replicas: Replicas) -> str:
    """The stages, a line for each.

    Args:
        times: the milliseconds of each call's forward pass, in the order of the stages.
    """
    rows: list[tuple[str, ...]] = [("stage", "rank", "layers", "parameters", "forward ms", "bytes sent")]
    remaining = iter(times)
    for stage, calls in enumerate(cut.calls):
        names = [call.operation.name for call in calls]
        layers = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})"
        parameters = sum(int(np.prod(v.shape)) for v in cut.variables(stage) if v.trainable)
        milliseconds = sum(next(remaining) for _ in calls)
        sent = sum(len(c.consumers) * sum(part.bytes for part in c.parts) for c in cut.sent_by(stage))
        ranks = ", ".join(map(str, replicas.with_position(schedule.rank_of(stage))))
        row: tuple[Any, ...] = stage, ranks, layers, parameters, f"{milliseconds:.2f}", sent
        rows.append(tuple(map(str, row)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {2}
    lines = [
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
    note = (
        f"{schedule.name}, {schedule.micro_batches} micro-batches: bubble {100 * schedule.bubble:.1f} %. "
        "Times are of 8 samples, bytes of one"
    )
    shared = [
        f"stages {', '.join(map(str, c.stages))} share {c.name}: {c.parts[0].bytes} bytes back in each micro-batch"
        for c in cut.crossings_of_kind(Kind.VARIABLE)
    ]
    return "\n".join([*lines, note, *shared])
