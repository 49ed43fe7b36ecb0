"""The objects of TensorFlow whose private names are in the contract (keras_contract.py)."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace
from typing import Any


def module_named(name: str) -> Any:
    """A module, also one that is an attribute of another under this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        return getattr(importlib.import_module(parent), last)


class TensorFlowOwners:
    """The objects of TensorFlow that have the names, each made when it is asked for."""

    def __init__(self) -> None:
        self.tf = importlib.import_module("tensorflow")

    @functools.cached_property
    def eager_context(self) -> Any:
        self.tf.random.set_seed(1)
        return module_named("tensorflow.python.eager.context").context()

    @functools.cached_property
    def graph(self) -> Any:
        return self.tf.function(lambda: self.tf.constant(0)).get_concrete_function().graph

    @functools.cached_property
    def call(self) -> Any:
        """The attributes of an operation that calls a function."""
        read = self.tf.function(self.tf.Variable(0).read_value)
        operations = self.tf.function(lambda: read()).get_concrete_function().graph.get_operations()
        found = next(operation for operation in operations if "PartitionedCall" in operation.type)
        return SimpleNamespace(**dict.fromkeys(found.node_def.attr))

    @property
    def graph_class(self) -> str:
        return type(self.graph).__name__

    @functools.cached_property
    def control_dependencies(self) -> Any:
        """A graph has it while its function is traced."""
        found = []
        graph = self.tf.compat.v1.get_default_graph
        self.tf.function(lambda: found.append(graph().experimental_acd_manager), autograph=False).get_concrete_function()
        return found[0]

    @property
    def autograph(self) -> Any:
        return self.tf.__internal__.autograph

    @functools.cached_property
    def source(self) -> Any:
        return self.tf.data.Dataset.range(8)

    @functools.cached_property
    def parallel_map(self) -> Any:
        return self.source.map(lambda x: x, num_parallel_calls=2, deterministic=True)

    @property
    def map_function(self) -> Any:
        return self.parallel_map._map_func

    @functools.cached_property
    def batched(self) -> Any:
        return self.source.batch(2)

    parallel_batch = functools.cached_property(lambda self: self.source.batch(2, num_parallel_calls=2, deterministic=True))
    cached = functools.cached_property(lambda self: self.source.cache("file"))
    operation = functools.cached_property(lambda self: self.graph.get_operations()[0])
    prefetched = functools.cached_property(lambda self: self.source.prefetch(2))
    iterator = functools.cached_property(lambda self: iter(self.source))
    repeated = functools.cached_property(lambda self: self.source.repeat(2))
    shuffled = functools.cached_property(lambda self: self.source.shuffle(2))
    taken = functools.cached_property(lambda self: self.source.take(2))
    skipped = functools.cached_property(lambda self: self.source.skip(2))

    @functools.cached_property
    def dataset_kinds(self) -> str:
        made = [self.batched, self.parallel_batch, self.parallel_map, self.prefetched, self.repeated, self.taken, self.skipped]
        made += [
            self.cached,
            self.source.padded_batch(2),
            self.source.map(lambda x: x),
            self.source.with_options(self.tf.data.Options()),
        ]
        return " ".join(type(dataset).__name__.lstrip("_") for dataset in made)
