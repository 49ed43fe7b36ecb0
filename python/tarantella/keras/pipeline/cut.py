"""A model's graph of layers, cut into the stages of a pipeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.pipeline.crossings import Crossing, Kind, Part
from tarantella.keras.pipeline.layer_losses import LayerLosses
from tarantella.keras.pipeline.trace import Trace, Traced, variables_of

Users = dict[int, tuple[Any, list[int]]]
"""Each variable, by its id, and the stages that use it, in their order."""


@dataclass(frozen=True)
class Cut:
    """The stages of a model.

    Attributes:
        graph: runs the model's layers.
        calls: for each stage its calls of layers and operations, in their order.
        crossings: what travels between stages.
        outputs: of the model.
        masked: which of the outputs have a mask.
        losses: that layers add, and of regularizers.
    """

    graph: Any
    calls: tuple[tuple[Any, ...], ...]
    crossings: tuple[Crossing, ...]
    outputs: tuple[Part, ...]
    masked: tuple[bool, ...]
    losses: LayerLosses

    def crossings_of_kind(self, kind: Kind) -> list[Crossing]:
        return [crossing for crossing in self.crossings if crossing.kind is kind]

    def received_by(self, stage: int) -> list[Crossing]:
        """The tensors of earlier stages that the stage needs."""
        return [crossing for crossing in self.crossings_of_kind(Kind.TENSOR) if stage in crossing.consumers]

    def sent_by(self, stage: int) -> list[Crossing]:
        """The tensors of the stage that later ones need."""
        return [crossing for crossing in self.crossings_of_kind(Kind.TENSOR) if crossing.producer == stage]

    def variables(self, stage: int) -> list[Any]:
        """All variables of the stage's layers, random seeds included; each once."""
        return _variables(self.calls[stage])

    def owned(self, stage: int) -> list[Any]:
        """Those that no earlier stage has, too: the first of several stages updates a variable."""
        crossing_variables = {crossing.key for crossing in self.crossings_of_kind(Kind.VARIABLE) if stage in crossing.consumers}
        return [v for v in self.variables(stage) if id(v) not in crossing_variables]


def _variables(calls: Sequence[Any]) -> list[Any]:
    return list({id(v): v for call in calls for v in variables_of(call)}.values())


def refuse_uncuttable(model: Any) -> None:
    """Raises UnsupportedError if the model is no graph of layers, or has steps of its own."""
    methods = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
    own = [name for name in methods if adapter.has_own(model, name)]
    if own:
        raise UnsupportedError(
            f"a pipeline cannot train {model.name!r} by the {own[0]} of {type(model).__name__}: each rank has a part of "
            "the model only. Use a model with Keras' own steps, or tnt.ParallelStrategy.DATA"
        )
    if adapter.layer_graph(model) is None and not isinstance(model, adapter.keras.Sequential):
        raise UnsupportedError(
            f"a pipeline cannot cut {model.name!r}, a subclassed model ({type(model).__name__}): its call does not say which "
            "layer follows which. Make it a functional or Sequential model, or use tnt.ParallelStrategy.DATA"
        )


def cut(model: Any, stage_of: Sequence[int], trace: Trace) -> Cut:
    """The cut that gives each call of the model's graph, in its order, this stage.

    Raises:
        UnsupportedError: these cannot be the stages of a pipeline.
    """
    graph, tensors = adapter.layer_graph(model), trace.tensors
    calls = adapter.layer_calls(graph)
    last = max(stage_of)
    stage_calls = tuple(tuple(c for c, s in zip(calls, stage_of, strict=True) if s == stage) for stage in range(last + 1))
    producers = {id(t): s for call, s in zip(calls, stage_of, strict=True) for t in call.outputs}
    symbolic = {id(t): t for call in calls for t in call.outputs}
    layers = {id(t): call.operation.name for call in calls for t in call.outputs}
    consumers: dict[int, set[int]] = {key: set() for key in producers}
    for call, stage in zip(calls, stage_of, strict=True):
        for tensor in call.input_tensors:
            consumers.get(id(tensor), set()).add(stage)
    for tensor in graph.outputs:
        consumers.get(id(tensor), set()).add(last)
    crossings = [
        Crossing(layers[key], key, made, later, _parts(symbolic[key].name, tensors[key], [*stage_of, last], made))
        for key, made in producers.items()
        if (later := tuple(sorted(stage for stage in consumers[key] if stage > made)))
    ]
    outputs = tuple(Part(tensors[id(t)].dtype, _tail(t.name, tensors[id(t)].shape)) for t in graph.outputs)
    users = _users(stage_calls)
    losses = _losses(model, users, last + 1, {mode: [stage_of[p] for p in places] for mode, places in trace.added.items()})
    everything = (*crossings, *losses.crossings(), *_shared_variables(users))
    masked = tuple(tensors[id(t)].seen.get(len(calls), False) for t in graph.outputs)
    result = Cut(graph, stage_calls, everything, outputs, masked, losses)
    _check(result)
    return result


def _parts(name: str, tensor: Traced, stage_of: Sequence[int], made: int) -> tuple[Part, ...]:
    parts = [Part(tensor.dtype, _tail(name, tensor.shape))]
    by_stage: dict[int, bool] = {}  # as the first call of each later stage sees it
    for place, is_masked in sorted(tensor.seen.items()):
        if stage_of[place] > made:
            by_stage.setdefault(stage_of[place], is_masked)
    if len(set(by_stage.values())) > 1:
        raise UnsupportedError(
            f"a layer takes the mask of {name} away, and several stages of the pipeline need this tensor, some with its mask "
            "and some without: cut elsewhere"
        )
    if tensor.mask is not None and any(by_stage.values()):
        parts.append(Part(tf.bool, _tail(f"the mask of {name}", tensor.mask)))
    return tuple(parts)


def _tail(name: str, shape: tf.TensorShape) -> tuple[int, ...]:
    if shape.rank is None or shape.rank == 0 or None in shape.as_list()[1:]:
        raise UnsupportedError(
            f"a pipeline cannot send {name}, whose shape is {shape}: all axes but that of samples must have a known size. Give "
            "the model's inputs, or the dataset's elements, a fixed shape, or cut elsewhere"
        )
    return tuple(shape.as_list()[1:])


def _users(stage_calls: Sequence[Sequence[Any]]) -> Users:
    users: Users = {}
    for stage, calls in enumerate(stage_calls):
        for variable in _variables(calls):
            users.setdefault(id(variable), (variable, []))[1].append(stage)
    return users


def _losses(model: Any, users: Users, stages: int, added: dict[bool, list[int]]) -> LayerLosses:
    regularized = [v for v in adapter.trainable_variables(model) if getattr(v, "regularizer", None) is not None]
    # the last stage with a variable: on one device, too, a regularizer's gradient is the first of those that are added up
    return LayerLosses(added, tuple((v, users[id(v)][1][-1]) for v in regularized), stages)


def _shared_variables(users: Users) -> list[Crossing]:
    """The trained variables that several stages use, such as an embedding that also makes the output."""
    found: list[Crossing] = []
    for variable, (first, *later) in users.values():
        if later and not variable.trainable:
            raise UnsupportedError(
                f"stages {first} and {later[0]} of the pipeline share {adapter.path(variable)}, which is not trained: only "
                "trained weights may be shared. Cut so that one stage has the layers that share it, or use "
                "tnt.ParallelStrategy.DATA"
            )
        if later:
            part = Part(tf.as_dtype(adapter.dtype_of(variable)), tuple(variable.shape), has_rows=False)
            found.append(Crossing(adapter.path(variable), id(variable), first, tuple(later), (part,), Kind.VARIABLE))
    return found


def refuse_other_sums(found: Cut) -> None:
    """Raises UnsupportedError if stages add up the gradients of a variable in another order than one device may do it.

    The sum of two is the same in any order. TensorFlow adds up three and more in one operation.
    """
    regularized = {id(v) for v, _ in found.losses.regularized}
    for crossing in found.crossings_of_kind(Kind.VARIABLE):
        uses = [call for calls in found.calls for call in calls if crossing.key in map(id, variables_of(call))]
        if len(uses) + (crossing.key in regularized) > 2:
            raise UnsupportedError(
                f"stages {', '.join(map(str, crossing.stages))} of the pipeline share {crossing.name}, whose gradient has more "
                "than two parts, and the last bit of their sum depends on the order: use it in two layers and without a "
                "regularizer, cut so that one stage has it, or leave out reproducible"
            )


def _check(found: Cut) -> None:
    for stage, calls in enumerate(found.calls):
        first = calls[0].operation.name if calls else "nothing"
        if not any(v.trainable for v in found.owned(stage)):
            raise UnsupportedError(
                f"stage {stage} of the pipeline ({first} ...) has no trainable variables of its own: its rank would train "
                "nothing. Use fewer stages, or cut elsewhere"
            )
        if stage and not found.received_by(stage):
            raise UnsupportedError(
                f"no data crosses the cut before stage {stage} of the pipeline ({first} ...): cut between layers that follow "
                "each other"
            )


class StageGraph:
    """Runs one stage where the model is called, and keeps what it made."""

    def __init__(self, found: Cut) -> None:
        self._cut = found
        self._stage: int | None = None
        self._values: dict[int, Any] = {}
        self._masks: dict[int, Any] = {}

    def mask_of(self, key: int) -> Any:
        """The mask of a tensor that the last stage that ran has made, as it was then."""
        return self._masks[key]

    def hooks(self) -> list[tuple[Any, str, Any]]:
        """The attributes to replace while the model is trained or evaluated."""
        name = adapter.layer_graph_runner()
        return [(self._cut.graph, name, self._runner(getattr(self._cut.graph, name)))]

    def run(self, model: Any, stage: int, x: Any, received: dict[int, Any], training: bool) -> tuple[Any, dict[int, Any]]:
        """The model's output, if it is the last stage, and all tensors that the stage made.

        received: those of earlier stages, by key, with their masks.
        """
        self._stage, self._values, self._masks = stage, dict(received), {}
        try:
            return model(x, training=training), self._values
        finally:
            self._stage, self._values = None, {}

    def _runner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
            if self._stage is None or call_fn is not None:
                return original(inputs, operation_fn=operation_fn, call_fn=call_fn)
            graph, stage = self._cut.graph, self._stage
            self._values.update(zip(map(id, graph.inputs), adapter.keras.tree.flatten(inputs), strict=True))
            for call in self._cut.calls[stage]:
                adapter.run_layer_calls([call], operation_fn, self._values)
                self._masks.update({id(t): adapter.mask_of(self._values[id(t)]) for t in call.outputs if id(t) in self._values})
            return adapter.layer_graph_outputs(graph, self._values) if stage == len(self._cut.calls) - 1 else []

        return run
