"""What a batch makes of a model's graph of layers: tensors, masks and added losses, found without computing anything."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.adapter.common.building import any_batch_size
from tarantella.keras.lengths import agreement
from tarantella.keras.step.patch import Attribute, patched
from tarantella.keras.xla import operations


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


class Trace(NamedTuple):
    """A model's graph, as a batch runs through it.

    Attributes:
        tensors: by the id of the symbolic one.
        added: for each loss that a layer adds by `add_loss` or an activity regularizer, in Keras' order, the place of the call
            that adds it; by whether the model is trained.
    """

    tensors: dict[int, Traced]
    added: dict[bool, list[int]]


def variables_of(call: Any) -> list[Any]:
    """All variables that a call of a layer uses."""
    return list(getattr(call.operation, "variables", []))


def trace(model: Any, x_spec: Any) -> Trace:
    """The model's graph, as a batch with this spec runs through it in training, and otherwise.

    Raises:
        UnsupportedError: a layer draws random numbers, or changes a variable, that would depend on the stages, or computes
            with a length of its whole batch.
    """
    adapter.common_seed_variables(make=True)  # Keras would make it in the trace
    found: dict[int, Traced] = {}
    added: dict[bool, list[int]] = {}
    for training in (True, False):
        recorder = _Recorder(model, found)
        with patched(recorder.attributes), without_lengths():
            graph = _graph_of(functools.partial(model, training=training), x_spec)
        refuse_noise(model, graph)
        _refuse_foreign_state(model, graph)
        added[training] = recorder.places_of_losses()
    return Trace(found, added)


def without_lengths() -> AbstractContextManager[None]:
    """Context in which a layer that pads to the longest sample of its batch, for example, is refused."""
    return agreement.refused("of which a pipeline computes one micro-batch after the other")


class _Recorder:
    """Runs the model's graph, call by call, and notes what each call makes.

    found: gets the tensors that are not in it yet.
    """

    def __init__(self, model: Any, found: dict[int, Traced]) -> None:
        self.graph = adapter.layer_graph(model)
        self._model, self._found, self._is_first = model, found, not found
        self._losses: list[list[int]] = []  # for each layer, the places of the calls that added its losses

    def attributes(self) -> list[Attribute]:
        """The graph runs by the recorder."""
        return [(self.graph, adapter.layer_graph_runner(), self.run)]

    def run(self, inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
        values = dict(zip(map(id, self.graph.inputs), adapter.keras.tree.flatten(inputs), strict=True))
        self._losses = [[] for _ in adapter.added_losses(self._model)]
        for place, call in enumerate([*adapter.layer_calls(self.graph), None]):
            for tensor in self.graph.outputs if call is None else call.input_tensors:
                if self._is_first and id(tensor) in self._found:
                    self._found[id(tensor)].seen[place] = adapter.mask_of(values[id(tensor)]) is not None
            if call is not None:
                adapter.run_layer_calls([call], operation_fn, values)
                self._note_losses(place)
            for key in values.keys() - self._found.keys():
                value, mask = values[key], adapter.mask_of(values[key])
                self._found[key] = Traced(value.dtype, value.shape, None if mask is None else mask.shape, {})
        return adapter.layer_graph_outputs(self.graph, values)

    def _note_losses(self, place: int) -> None:
        for noted, losses in zip(self._losses, adapter.added_losses(self._model), strict=True):
            noted.extend([place] * (len(losses) - len(noted)))

    def places_of_losses(self) -> list[int]:
        """The place of the call that added each loss, in Keras' order."""
        return [place for noted in self._losses for place in noted]


def _graph_of(function: Callable[[Any], Any], x_spec: Any) -> Any:
    spec = tf.nest.map_structure(any_batch_size, x_spec)
    return tf.function(function, autograph=False).get_concrete_function(spec).graph


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
    foreign = operations.changed_unknown(graph, held)
    if foreign:
        names = ", ".join(variable.name.partition(":")[0] for variable in foreign)
        raise UnsupportedError(
            f"a layer changes {names}, which is no weight of a layer: a pipeline cannot tell which rank has it. "
            "Make it a keras.random.SeedGenerator that is an attribute of the layer, or a weight (add_weight), or use "
            "tnt.ParallelStrategy.DATA"
        )
