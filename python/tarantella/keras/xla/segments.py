"""`jit_compile=True` on several ranks: XLA compiles the model in segments, and gradients are reduced between them.

A step that is compiled as a whole gives its gradients when it ends, and cannot call our ops. Here the step itself is not
compiled. The model's calls in it run in functions that are, the segments. Their backward functions are compiled as well, and
give their gradients when they end: those of the last segment first, while backward goes on in the others.

* A functional or Sequential model is cut where a new bucket of gradients begins. So a bucket is reduced as early as possible,
  and ``fusion_threshold`` sets the size of segments.
* The `call` of any other model is one segment, and so is that of a functional model where no gradients are taken.
* A layer that XLA cannot compile in this way runs without XLA, and the log says which and why.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import xla_operations


class _GraphRun:
    """One run through a graph of layers."""

    def __init__(self, nodes: list[Any], operation_fn: Any, values: dict[int, Any], outputs: set[int]) -> None:
        self.nodes = nodes
        self.values = values
        self._operation_fn = operation_fn
        self._outputs = outputs

    def inputs_of(self, part: Sequence[Any]) -> dict[int, Any]:
        """The values that the part uses."""
        needed = {id(tensor) for node in part for tensor in node.input_tensors}
        return {key: value for key, value in self.values.items() if key in needed}

    def function(self, part: Sequence[Any]) -> Callable[[dict[int, Any]], dict[int, Any]]:
        """The function from `inputs_of` the part to the values that later nodes or the outputs use."""
        inside = {id(node) for node in part}
        used = {id(tensor) for node in self.nodes if id(node) not in inside for tensor in node.input_tensors} | self._outputs
        made = [id(tensor) for node in part for tensor in node.outputs if id(tensor) in used]

        def compute(inputs: dict[int, Any]) -> dict[int, Any]:
            values = dict(inputs)
            adapter.run_layer_calls(part, self._operation_fn, values)
            return {key: values[key] for key in made if key in values}

        return compute

    def plain(self, part: Sequence[Any]) -> None:
        """Runs the part without compiling it."""
        adapter.run_layer_calls(part, self._operation_fn, self.values)


class CompiledCalls:
    """Turns the calls of a model's layers in a step into functions that XLA compiles.

    Args:
        buckets: gives the bucket of each trainable variable, by the variable's id.
    """

    def __init__(self, model: Any, buckets: Callable[[], dict[int, int]]) -> None:
        self._model = model
        self._buckets = buckets
        self._active = False  # in a step that is being traced, and not in a segment
        self._training = False
        self._bucket_of: dict[int, int] = {}
        self._layers: list[Any] = []
        self._segments = 0  # of the step that is being traced
        self._warned: set[str] = set()

    def functions(self) -> list[tuple[Any, str, Any]]:
        """The attributes to replace while the model is trained or evaluated."""
        layers = adapter.layers_to_compile(self._model)
        graphs = {id(graph): graph for graph in (adapter.layer_graph(layer) for layer in layers) if graph is not None}
        return [
            *adapter.without_jit(self._model),
            *((layer, "call", self._call(layer, layer.call)) for layer in layers),
            *((graph, adapter.layer_graph_runner(), self._run_graph(graph)) for graph in graphs.values()),
        ]

    @contextmanager
    def step(self, training: bool) -> Iterator[None]:
        """A step is traced in this context."""
        self._active, self._training = not tf.executing_eagerly(), training
        self._segments = 0
        self._bucket_of = self._buckets() if training else {}
        self._layers = adapter.layers_of(self._model)
        try:
            yield
            if self._active and not self._segments:
                kind = "training" if training else "test"
                self._warn_once(f"jit_compile=True: XLA compiles nothing of the {kind} step, as it calls no layer that can be")
        finally:
            self._active = False

    @contextmanager
    def _paused(self) -> Iterator[None]:
        before, self._active = self._active, False
        try:
            yield
        finally:
            self._active = before

    # ------------------------------------------------------------------------------------------------------ hooks

    def _call(self, layer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._active or self._is_cut(layer):
                return original(*args, **kwargs)
            try:
                return self._compiled(layer.name, original, args, kwargs)
            except _NotCompilable as reason:
                return self._uncompiled(layer, reason, lambda: original(*args, **kwargs))

        return call

    def _run_graph(self, graph: Any) -> Callable[..., Any]:
        original = getattr(graph, adapter.layer_graph_runner())

        @functools.wraps(original)
        def run_graph(inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
            if not self._active or call_fn is not None:
                return original(inputs, operation_fn=operation_fn, call_fn=call_fn)
            values = dict(zip(map(id, graph.inputs), tf.nest.flatten(inputs), strict=True))
            run = _GraphRun(adapter.layer_calls(graph), operation_fn, values, {id(tensor) for tensor in graph.outputs})
            for part in self._parts(run.nodes):
                self._run_part(run, part)
            return adapter.layer_graph_outputs(graph, values)

        return run_graph

    # --------------------------------------------------------------------------------------------------- segments

    def _is_cut(self, operation: Any) -> bool:
        """Whether it is a graph of layers with gradients in several buckets, to be compiled in several segments."""
        if not self._training or adapter.layer_graph(operation) is None:
            return False
        return len({self._bucket_of.get(id(v), 0) for v in operation.trainable_variables}) > 1

    def _parts(self, nodes: Sequence[Any]) -> list[list[Any]]:
        """The nodes of each segment. A new one begins where gradients of a lower bucket do: backward makes these earlier."""
        parts: list[list[Any]] = [[]]
        lowest: int | None = None
        for node in nodes:
            found = [self._bucket_of.get(id(v), 0) for v in getattr(node.operation, "trainable_variables", [])]
            cut = self._is_cut(node.operation)
            if parts[-1] and (cut or (found and lowest is not None and min(found) < lowest)):
                parts.append([])
            parts[-1].append(node)
            lowest = min(found) if found else lowest
            if cut:
                parts.append([])
        return [part for part in parts if part]

    def _run_part(self, run: _GraphRun, part: Sequence[Any]) -> None:
        if len(part) == 1 and self._is_cut(part[0].operation):
            run.plain(part)
            return
        first, last = part[0].operation.name, part[-1].operation.name
        name = first if len(part) == 1 else f"{first}_to_{last}"
        try:
            run.values.update(self._compiled(name, run.function(part), (run.inputs_of(part),), {}))
        except _NotCompilable as reason:
            if len(part) == 1:
                self._uncompiled(part[0].operation, reason, lambda: run.plain(part))
                return
            half = len(part) // 2
            self._run_part(run, part[:half])
            self._run_part(run, part[half:])

    def _compiled(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._paused():
            result = _call_compiled(name, function, args, kwargs, self._layers, self._training)
        self._segments += 1
        return result

    def _uncompiled(self, operation: Any, reason: Exception, run: Callable[[], Any]) -> Any:
        """Runs an operation that XLA cannot compile. If it is a model, its layers may still be compiled."""
        if adapter.layer_graph(operation) is not None:
            return run()
        what = f"{operation.name} ({type(operation).__name__})"
        if adapter.is_model(operation):
            self._warn_once(f"jit_compile=True: the layers of {what} are compiled one by one on several ranks, as {reason}")
            return run()
        self._warn_once(f"jit_compile=True: {what} runs without XLA on several ranks, as {reason}")
        with self._paused():
            return run()

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            runtime.logger.warning(text)


# ---------------------------------------------------------------------------------------------------- one segment


class _NotCompilable(Exception):
    """XLA cannot compile this; the text gives the reason."""


def _call_compiled(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, layers: Sequence[Any], training: bool
) -> Any:
    """The function's result, computed by XLA, with the masks of its outputs and the tensors that it left in the layers.

    Raises:
        _NotCompilable: XLA cannot compile it; no state has changed.
    """
    given = _tensors_in((args, kwargs))
    kept: dict[str, Any] = {}

    def segment(tensors: list[tf.Tensor], masks: list[Any]) -> tuple[list[tf.Tensor], list[Any], list[tf.Tensor]]:
        kept["graph"] = graph = tf.compat.v1.get_default_graph()
        inner_args, inner_kwargs = given.with_tensors(tensors, masks)
        result = _tensors_in(function(*inner_args, **inner_kwargs))
        _check(graph, training)
        kept["result"] = result
        kept["left"] = left = _left_behind(layers, graph)
        return result.tensors, result.masks, [tensor for _, _, tensor in left]

    segment.__name__ = f"segment_{name}"
    compiled = tf.function(segment, autograph=False, jit_compile=True)
    try:
        tensors, masks, left = compiled(given.tensors, given.masks)
    except Exception as error:
        if "graph" in kept:
            _forget(_left_behind(layers, kept["graph"]))
        if isinstance(error, _NotCompilable):
            raise
        words = " ".join(str(error).split())[:200]
        raise _NotCompilable(f"it cannot be traced alone: {type(error).__name__}: {words}") from error
    for (owner, key, _), tensor in zip(kept["left"], left, strict=True):
        _put(owner, key, tensor)
    return kept["result"].with_tensors(tensors, masks)


@dataclass(frozen=True)
class _Tensors:
    """A structure of any values, the tensors in it, and their masks."""

    structure: Any
    flat: list[Any]

    @property
    def tensors(self) -> list[tf.Tensor]:
        return [item for item in self.flat if isinstance(item, tf.Tensor)]

    @property
    def masks(self) -> list[Any]:
        return [adapter.mask_of(tensor) for tensor in self.tensors]

    def with_tensors(self, tensors: Sequence[tf.Tensor], masks: Sequence[Any]) -> Any:
        """The same structure with other tensors and masks."""
        for tensor, mask in zip(tensors, masks, strict=True):
            if mask is not None:
                adapter.set_mask(tensor, mask)
        others = iter(tensors)
        flat = [next(others) if isinstance(item, tf.Tensor) else item for item in self.flat]
        return tf.nest.pack_sequence_as(self.structure, flat, expand_composites=True)


def _tensors_in(structure: Any) -> _Tensors:
    return _Tensors(structure, tf.nest.flatten(structure, expand_composites=True))


def _left_behind(layers: Sequence[Any], graph: Any) -> list[tuple[Any, Any, tf.Tensor]]:
    """Tensors of the graph that a call left in layers, as losses or in attributes: container, key, tensor."""
    found = []
    for layer in layers:
        for owner in (layer.__dict__, *(value for value in layer.__dict__.values() if isinstance(value, (dict, list)))):
            for key, value in list(owner.items() if isinstance(owner, dict) else enumerate(owner)):
                if isinstance(value, tf.Tensor) and getattr(value, "graph", None) is graph:
                    found.append((owner, key, value))
    return found


def _put(owner: Any, key: Any, tensor: tf.Tensor) -> None:
    (dict if isinstance(owner, dict) else list).__setitem__(owner, key, tensor)


def _forget(left: Sequence[tuple[Any, Any, tf.Tensor]]) -> None:
    for owner, key, _ in reversed(left):
        (dict if isinstance(owner, dict) else list).__delitem__(owner, key)


_CONTROL = {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"}
_PLACEHOLDERS = {"Placeholder"}  # the function's own arguments


def _check(graph: Any, training: bool) -> None:
    """Raises if XLA cannot compile the graph, or if its backward pass could not be a function of its own."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    kinds = {node.op for node in nodes} - {function.signature.name for function in definition.library.function}
    if training and kinds & _CONTROL:
        raise _NotCompilable("what a loop or a branch in it keeps for its gradients cannot leave what XLA compiles")
    if any(tensor.dtype == tf.string for tensor in graph.inputs):
        raise _NotCompilable("XLA has no strings")
    unknown = sorted(kinds - _PLACEHOLDERS - xla_operations()) if xla_operations() else []
    if unknown:
        raise _NotCompilable(f"XLA has no {unknown[0]}")
