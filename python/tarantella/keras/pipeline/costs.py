"""The time that each layer of a model takes, and the bytes of its tensors: what a partition into stages depends on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, deferred
from tarantella.keras.pipeline.trace import Traced, variables_of
from tarantella.keras.step.patch import patched

BACKWARD = 2.0
"""The time of a backward pass, in forward passes."""
BYTES_PER_MS = 2e6
"""The speed at which a cut is taken to send: slower than shared memory, faster than most networks."""


@dataclass(frozen=True)
class Layers:
    """The facts about a sequence of n layers that a partition depends on.

    Attributes:
        times: the milliseconds of each layer's forward pass.
        is_trained: whether each layer has variables that are trained.
        sent: for each place 0 ... n, the bytes that cross a cut just before this layer, forward.
        is_allowed: for each place, whether a cut may be made there.
        is_whole: for each place, whether a cut there leaves each trained variable to one stage; empty if all do.
    """

    times: Sequence[float]
    is_trained: Sequence[bool]
    sent: Sequence[float]
    is_allowed: Sequence[bool]
    is_whole: Sequence[bool] = ()

    def cost(self, begin: int, end: int) -> float:
        """The milliseconds of a stage with these layers: forward, backward, and the messages at its begin."""
        return (1 + BACKWARD) * sum(self.times[begin:end]) + 2 * self.sent[begin] / BYTES_PER_MS


def best_partition(layers: Layers, stages: int) -> list[int] | None:
    """The begins of all stages but the first, such that the most expensive stage costs least. None if there is no partition.

    Each stage has a layer with trained variables. Of several partitions the one that sends the fewest bytes is taken.
    """
    n = len(layers.times)
    places = [i for i in range(1, n) if layers.is_allowed[i]]
    found: dict[int, tuple[float, float, list[int]]] = {0: (0.0, 0.0, [])}  # by a stage's begin: the stages before it
    for _ in range(stages - 1):
        following: dict[int, tuple[float, float, list[int]]] = {}
        for begin, (worst, sent, begins) in found.items():
            for place in places:
                if place > begin and any(layers.is_trained[begin:place]):
                    cost = max(worst, layers.cost(begin, place))
                    candidate = (cost, sent + layers.sent[place], [*begins, place])
                    following[place] = min(following.get(place, candidate), candidate)
        found = following
    complete = [
        (max(worst, layers.cost(begin, n)), sent, begins)
        for begin, (worst, sent, begins) in found.items()
        if any(layers.is_trained[begin:])
    ]
    return min(complete)[2] if complete else None


def max_stages(layers: Layers) -> int:
    """The largest number of stages for which there is a partition."""
    stages = 0
    while best_partition(layers, stages + 1) is not None:
        stages += 1
    return stages


_RUNS = 3  # of which the fastest counts


def layers(model: Any, x_spec: Any, rows: int, tensors: dict[int, Traced]) -> Layers:
    """The facts about the calls of the model's graph, in their order.

    Args:
        rows: the samples of a micro-batch.
        tensors: of the graph.
    """
    graph = adapter.layer_graph(model)
    calls = adapter.layer_calls(graph)
    try:
        times = measured(model, x_spec, rows)
    except Exception as error:  # a layer may refuse made-up numbers in any way
        runtime.logger.info(
            "the layers' times are estimated from their variables, as one of them refused made-up data: %s", error
        )
        times = [1e-3 + 1e-6 * sum(v.shape.num_elements() or 0 for v in map(adapter.unwrap, variables_of(c))) for c in calls]
    sent = crossing_bytes(graph, calls, tensors, rows)
    shared, untrained = _within_a_variables_calls(calls, True), _within_a_variables_calls(calls, False)
    is_allowed = [0 < i < len(calls) and sent[i] > 0 and i not in untrained for i in range(len(calls) + 1)]
    is_whole = [i not in shared for i in range(len(calls) + 1)]
    return Layers(times, [any(v.trainable for v in variables_of(call)) for call in calls], sent, is_allowed, is_whole)


def measured(model: Any, x_spec: Any, rows: int) -> list[float]:
    """The milliseconds of each call's forward pass on made-up samples, eagerly.

    Calls that look alike get the time of the fastest one: they differ only by the noise of a busy machine.
    """
    graph = adapter.layer_graph(model)
    calls = adapter.layer_calls(graph)
    best = [float("inf")] * len(calls)

    def run(inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
        values = dict(zip(map(id, graph.inputs), adapter.keras.tree.flatten(inputs), strict=True))
        for place, call in enumerate(calls):
            with deferred.present(variables_of(call)):
                begin = time.perf_counter()
                adapter.run_layer_calls([call], operation_fn, values)
                best[place] = min(best[place], 1e3 * (time.perf_counter() - begin))
        return adapter.layer_graph_outputs(graph, values)

    x = tf.nest.map_structure(lambda spec: tf.zeros([rows, *spec.shape[1:]], spec.dtype), x_spec)
    with patched(lambda: [(graph, adapter.layer_graph_runner(), run)]):
        for _ in range(_RUNS):
            model(x, training=False)
    fastest: dict[Any, float] = {}
    for call, milliseconds in zip(calls, best, strict=True):
        fastest[_looks(call)] = min(milliseconds, fastest.get(_looks(call), float("inf")))
    return [fastest[_looks(call)] for call in calls]


def _looks(call: Any) -> tuple[Any, ...]:
    """What the time of a call depends on, as far as it shows: the layer's class, and the shapes that it computes with."""
    tensors = tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in (*call.input_tensors, *call.outputs))
    return type(call.operation).__name__, tuple(tuple(v.shape) for v in variables_of(call)), tensors


def crossing_bytes(graph: Any, calls: Sequence[Any], tensors: dict[int, Traced], rows: int) -> list[float]:
    """For each place between calls the bytes of a micro-batch's tensors that are made before and needed after it."""
    made = {id(t): place for place, call in enumerate(calls) for t in call.outputs}
    needed = {id(t): place for place, call in enumerate(calls) for t in call.input_tensors}  # by the last one
    needed.update({id(t): len(calls) - 1 for t in graph.outputs})
    sent = [0.0] * (len(calls) + 1)
    for key, begin in made.items():
        shape = tensors[key].shape
        elements = 1
        for length in shape.as_list()[1:] if shape.rank else []:
            elements *= length or 1
        for place in range(begin + 1, needed.get(key, begin) + 1):
            sent[place] += rows * elements * tensors[key].dtype.size
    return sent


def _within_a_variables_calls(calls: Sequence[Any], trained: bool) -> set[int]:
    """The places at which a cut would divide the calls that use one variable, of the trained ones or of the others."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, call in enumerate(calls):
        for variable in variables_of(call):
            if variable.trainable == trained:
                first.setdefault(id(variable), place)
                last[id(variable)] = place
    return {place for key, begin in first.items() for place in range(begin + 1, last[key] + 1)}
