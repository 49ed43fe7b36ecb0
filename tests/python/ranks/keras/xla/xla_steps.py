"""What a step of a model with `jit_compile=True` is made of, and what is left of it in the model."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, log_messages, run

x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
messages = log_messages()


def plain(hidden: int = 4) -> Any:
    dense = [layers.Dense(8, activation="tanh", name=f"hidden_{i}") for i in range(hidden)]
    return keras.Sequential([keras.Input((8,)), *dense, layers.Dense(1, name="last")], name="whole")


class Graphs:
    """Keeps the graphs in which a model's steps are traced."""

    def __init__(self, model: Any) -> None:
        self.training: list[Any] = []
        self.test: list[Any] = []
        for kind, name in ((self.training, "train_step"), (self.test, "test_step")):
            object.__setattr__(model, name, self._keeping(kind, getattr(model, name)))

    def _keeping(self, kind: list[Any], step: Any) -> Any:
        def keeping(batch: Any) -> Any:
            if not tf.executing_eagerly():  # a trial runs the step eagerly before
                kind.append(tf.compat.v1.get_default_graph())
            return step(batch)

        return keeping


def compiled_calls(graph: Any) -> dict[str, Any]:
    """The calls of functions that XLA must compile, by the functions' names."""
    functions = {f.signature.name: f for f in graph.as_graph_def().library.function}
    calls = {op: op.get_attr("f").name for op in graph.get_operations() if "PartitionedCall" in op.type}
    return {name: op for op, name in calls.items() if functions[name].attr["_XlaMustCompile"].b}


def before(op: Any) -> set[Any]:
    """All operations that run before this one."""
    found: set[Any] = set()
    waiting = [op]
    while waiting:
        for earlier in [*(t.op for t in waiting[-1].inputs), *waiting.pop().control_inputs]:
            if earlier not in found:
                found.add(earlier)
                waiting.append(earlier)
    return found


def fitted(threshold: float | None, model: Any = None, **how: Any) -> tuple[Any, Graphs]:
    inner = plain() if model is None else model
    graphs = Graphs(inner)
    wrapped = tnt.Model(inner, fusion_threshold=threshold)
    wrapped.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=True, **how)
    wrapped.fit(dataset, epochs=2, verbose=0)
    return wrapped, graphs


def parts(graphs: Graphs) -> dict[str, Any]:
    """The compiled functions of the step, and behind how many compiled backward functions each bucket starts."""
    graph = graphs.training[0]
    calls = compiled_calls(graph)
    backward = {op for name, op in calls.items() if "backward" in name}
    starts = [op for op in graph.get_operations() if op.type == "TntStart"]
    behind = {op.get_attr("bucket"): len(before(op) & backward) for op in starts if before(op) & backward}
    return {
        "forward": names(name for name in calls if "forward" in name),
        "backward": len(backward),
        "behind": [behind[bucket] for bucket in sorted(behind)],
    }


def names(functions: Iterable[str]) -> list[str]:
    """Without what TensorFlow adds."""
    return sorted(name.split("segment_")[1].rsplit("_", 1)[0] for name in functions)


@check
def segments() -> dict[str, Any]:
    """By the fusion threshold in bytes: a layer has 288, the last has 36."""
    return {str(threshold): parts(fitted(threshold)[1]) for threshold in (0, 300, 600, float("inf"))}


@check
def nested_model() -> dict[str, Any]:
    inner = plain(3)
    return parts(fitted(300, keras.Sequential([keras.Input((8,)), inner, layers.Dense(1, name="outer")]))[1])


@check
def several_steps_in_one_call() -> dict[str, Any]:
    return parts(fitted(300, steps_per_execution=2)[1])


@check
def evaluation() -> list[str]:
    wrapped, graphs = fitted(0)
    wrapped.evaluate(dataset, verbose=0)
    return names(compiled_calls(graphs.test[0]))


@check
def nothing_is_left_in_the_model() -> list[Any]:
    inner = plain()
    wrapped = tnt.Model(inner)
    wrapped.compile("sgd", "mse", jit_compile=True)
    owners = [inner, inner._functional, *inner.layers]
    before = [set(owner.__dict__) for owner in owners]
    wrapped.fit(dataset, verbose=0)
    wrapped.evaluate(dataset, verbose=0)
    left = [sorted(set(owner.__dict__) - known) for owner, known in zip(owners, before, strict=True)]
    return [left, wrapped.jit_compile]


@check
def callbacks_have_the_plain_model() -> list[Any]:
    """What a user does in the middle of training: predicts, clones and copies."""
    inner, found = plain(), []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            predicted = inner.predict(x, verbose=0)
            clone = keras.models.clone_model(inner)
            clone.set_weights(inner.get_weights())
            found.append(np.allclose(predicted, clone(x), atol=1e-6) and np.allclose(predicted, inner(x), atol=1e-6))
            found.append(any("call" in layer.__dict__ for layer in [clone, *clone.layers]))

    wrapped = tnt.Model(inner)
    wrapped.compile("sgd", "mse", jit_compile=True)
    wrapped.fit(dataset, epochs=2, verbose=0, callbacks=[Look()])
    return found


@check
def auto_is_off_and_says_so() -> list[Any]:
    """As on a machine with a GPU, where Keras' choice is True."""
    messages.clear()
    inner = plain()
    object.__setattr__(inner, "_resolve_auto_jit_compile", lambda: True)
    wrapped = tnt.Model(inner)
    wrapped.compile("sgd", "mse")
    chosen = plain()
    object.__setattr__(chosen, "_resolve_auto_jit_compile", lambda: True)
    tnt.Model(chosen).compile("sgd", "mse", jit_compile=False)  # nobody has asked for "auto"
    return [wrapped.jit_compile, list(messages)]


class NoLayers(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = self.add_weight(shape=(8, 1))

    def call(self, inputs: Any) -> Any:
        return inputs @ self.kernel

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(data[0] @ self.kernel - data[1]))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@check
def a_step_without_layers_says_so() -> list[str]:
    messages.clear()
    fitted(None, NoLayers())
    return list(messages)


class Talks(layers.Layer):
    """Its call communicates."""

    def call(self, inputs: Any) -> Any:
        return inputs + tnt.all_reduce(tf.reduce_mean(inputs))


@check
def own_communication_in_a_layer() -> list[str]:
    messages.clear()
    fitted(None, keras.Sequential([keras.Input((8,)), layers.Dense(4), Talks(name="talks"), layers.Dense(1)]))
    return list(messages)


run(sys.argv[1])
