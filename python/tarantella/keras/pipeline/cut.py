"""A model's graph of layers, cut into the stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.step.patch import Patch
from tarantella.keras.xla import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Part(NamedTuple):
    """A tensor that is sent: its type, and its shape without the batch axis."""

    dtype: tf.DType
    tail: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes for each sample."""
        size: int = self.dtype.size
        for length in self.tail:
            size *= length
        return size


@dataclass(frozen=True)
class Crossing:
    """A tensor of the graph that one stage makes and later ones need.

    Attributes:
        name: of the layer or operation that makes it.
        key: the id of the symbolic tensor.
        parts: the tensor, and its mask if it has one.
    """

    name: str
    key: int
    producer: int
    consumers: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that have the tensor, in their order."""
        return (self.producer, *self.consumers)

    @property
    def is_differentiable(self) -> bool:
        """Whether its gradient goes back."""
        return bool(self.parts[0].dtype.is_floating)


@dataclass(frozen=True)
class Cut:
    """The stages of a model.

    Attributes:
        graph: runs the model's layers.
        calls: for each stage its calls of layers and operations, in their order.
        crossings: the tensors between stages.
        outputs: of the model.
    """

    graph: Any
    calls: tuple[tuple[Any, ...], ...]
    crossings: tuple[Crossing, ...]
    outputs: tuple[Part, ...]

    def received_by(self, stage: int) -> list[Crossing]:
        """The tensors of earlier stages that the stage needs."""
        return [crossing for crossing in self.crossings if stage in crossing.consumers]

    def sent_by(self, stage: int) -> list[Crossing]:
        """The tensors of the stage that later ones need."""
        return [crossing for crossing in self.crossings if crossing.producer == stage]

    def variables(self, stage: int) -> list[Any]:
        """All variables of the stage's layers, random seeds included; each once."""
        return list({id(v): v for call in self.calls[stage] for v in variables_of(call)}.values())


class Traced(NamedTuple):
    """A tensor of the graph, as a batch makes it.

    Attributes:
        mask: the shape of its mask; None if it has none.
        seen: whether it still has the mask when a call needs it, by the call's place; one place more for the model's output.
            Keras' attention takes the masks of its inputs away.
    """

    dtype: tf.DType
    shape: tf.TensorShape
    mask: tf.TensorShape | None
    seen: dict[int, bool]


def variables_of(call: Any) -> list[Any]:
    """All variables that a call of a layer uses."""
    return list(getattr(call.operation, "variables", []))


def refuse_uncuttable(model: Any) -> None:
    """Raises UnsupportedError if the model is no graph of layers, or has steps of its own."""
    own = [name for name in ("train_step", "test_step", "predict_step", "compute_loss") if adapter.has_own(model, name)]
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


def traced(model: Any, x_spec: Any) -> dict[int, Traced]:
    """All tensors of the model's graph, by the id of the symbolic one, as a batch with this spec makes them.

    Raises:
        UnsupportedError: a layer adds a loss, or draws random numbers that would depend on the stages.
    """
    graph = adapter.layer_graph(model)
    adapter.common_seed_variables(make=True)  # Keras would make it in the trace
    found: dict[int, Traced] = {}

    def run(inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
        values = dict(zip(map(id, graph.inputs), adapter.keras.tree.flatten(inputs), strict=True))
        calls = adapter.layer_calls(graph)
        for place, call in enumerate([*calls, None]):
            for tensor in graph.outputs if call is None else call.input_tensors:
                if id(tensor) in found:
                    found[id(tensor)].seen[place] = adapter.mask_of(values[id(tensor)]) is not None
            if call is not None:
                adapter.run_layer_calls([call], operation_fn, values)
            for key in values.keys() - found.keys():
                value, mask = values[key], adapter.mask_of(values[key])
                found[key] = Traced(value.dtype, value.shape, None if mask is None else mask.shape, {})
        return adapter.layer_graph_outputs(graph, values)

    def forward(x: Any) -> None:
        model(x, training=True)
        if model.losses:
            adding = [layer.name for layer in adapter.layers_of(model) if layer is not model and layer.losses]
            raise UnsupportedError(
                f"a pipeline has no place yet for losses that layers add, as {', '.join(adding)} does (a regularizer, or "
                "add_loss): use the optimizer's weight_decay, or tnt.ParallelStrategy.DATA"
            )

    patch = Patch([(graph, adapter.layer_graph_runner(), run)])
    patch.apply()
    try:
        of_training = _graph_of(forward, x_spec)
    finally:
        patch.revert()
    for trace in (of_training, _graph_of(lambda x: model(x, training=False), x_spec)):
        refuse_noise(model, trace)
        _refuse_foreign_state(model, trace)
    return found


def _graph_of(function: Callable[[Any], Any], x_spec: Any) -> Any:
    of_any_size = tf.nest.map_structure(_of_any_size, x_spec)
    return tf.function(function, autograph=False).get_concrete_function(of_any_size).graph


NOISE = (
    "{} draws random numbers that depend on the calls before, and so in a pipeline on a rank's layers: use Keras' layers, or "
    "keras.random with a keras.random.SeedGenerator that is an attribute of the layer, or tnt.ParallelStrategy.DATA"
)


def refuse_noise(model: Any, graph: Any) -> None:
    """Raises UnsupportedError if the graph draws from random generators that no layer of the model holds."""
    draws = [*operations.with_random_states(graph), *operations.draws_of_other_generators(graph, adapter.seed_variables(model))]
    if operations.used(graph, 0, adapter.common_seed_variables()):
        draws.append("keras.random without a seed")
    if draws:
        raise UnsupportedError(NOISE.format(f"the model ({', '.join(draws)})"))


def _refuse_foreign_state(model: Any, graph: Any) -> None:
    held = [v for call in adapter.layer_calls(adapter.layer_graph(model)) for v in variables_of(call)]
    foreign = operations.changed_others(graph, held)
    if foreign:
        raise UnsupportedError(
            f"a layer changes {', '.join(foreign)}, which is no weight of a layer: a pipeline cannot tell which rank has it. "
            "Make it a keras.random.SeedGenerator that is an attribute of the layer, or a weight (add_weight), or use "
            "tnt.ParallelStrategy.DATA"
        )


def _of_any_size(spec: Any) -> Any:
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) else spec


def cut(model: Any, stage_of: Sequence[int], tensors: dict[int, Traced]) -> Cut:
    """The cut that gives each call of the model's graph, in its order, this stage.

    Raises:
        UnsupportedError: these cannot be the stages of a pipeline.
    """
    graph = adapter.layer_graph(model)
    calls = adapter.layer_calls(graph)
    last = max(stage_of)
    producers = {id(t): s for call, s in zip(calls, stage_of, strict=True) for t in call.outputs}
    symbolic = {id(t): t for call in calls for t in call.outputs}
    layers = {id(t): call.operation.name for call in calls for t in call.outputs}
    consumers: dict[int, set[int]] = {key: set() for key in producers}
    for call, stage in zip(calls, stage_of, strict=True):
        for tensor in call.input_tensors:
            consumers.get(id(tensor), set()).add(stage)
    for tensor in graph.outputs:
        consumers.get(id(tensor), set()).add(last)
    crossings = tuple(
        Crossing(layers[key], key, made, later, _parts(symbolic[key].name, tensors[key], [*stage_of, last], made))
        for key, made in producers.items()
        if (later := tuple(sorted(stage for stage in consumers[key] if stage > made)))
    )
    of_stages = tuple(tuple(c for c, s in zip(calls, stage_of, strict=True) if s == stage) for stage in range(last + 1))
    outputs = tuple(Part(tensors[id(t)].dtype, _tail(t.name, tensors[id(t)].shape)) for t in graph.outputs)
    result = Cut(graph, of_stages, crossings, outputs)
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


def _check(found: Cut) -> None:
    owners: dict[int, int] = {}
    for stage, calls in enumerate(found.calls):
        first = calls[0].operation.name if calls else "nothing"
        if not any(v.trainable for v in found.variables(stage)):
            raise UnsupportedError(
                f"stage {stage} of the pipeline ({first} ...) has no trainable variables: its rank would train nothing. Use "
                "fewer stages, or cut elsewhere"
            )
        if stage and not found.received_by(stage):
            raise UnsupportedError(
                f"no data crosses the cut before stage {stage} of the pipeline ({first} ...): cut between layers that follow "
                "each other"
            )
        for variable in found.variables(stage):
            if owners.setdefault(id(variable), stage) != stage:
                raise UnsupportedError(
                    f"stages {owners[id(variable)]} and {stage} of the pipeline share {adapter.path(variable)}: a variable "
                    "belongs to one rank. Cut so that one stage has the layers that share it, or use tnt.ParallelStrategy.DATA"
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
