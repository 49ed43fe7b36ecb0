"""What a step draws at random on each rank: whether ranks draw alike, and what serial Keras draws."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, log_messages, raised, run
from noise_sources import LEGACY, N, Sources, a_few, all_sources, of_tensorflow, traced_before
from tarantella.keras import adapter

keras = tf.keras
layers = keras.layers
RANK, SIZE = tnt.get_rank(), tnt.get_size()
messages = log_messages()
logging.getLogger("TNT_LIB").propagate = False

# ------------------------------------------------------------------------------------------------- models that draw


class Noise(layers.Layer):
    """Draws from each source in each call and leaves the numbers in variables."""

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self.__dict__["sources"] = sources  # past Keras, which would keep their states in files
        self.__dict__["sinks"] = {name: tf.Variable(tf.zeros([N])) for name in sources}

    def call(self, inputs: Any) -> Any:
        for name, source in self.sources.items():
            self.sinks[name].assign(tf.cast(source(), tf.float32))
        return inputs

    def numbers(self) -> dict[str, np.ndarray]:
        return {name: sink.numpy() for name, sink in self.sinks.items()}


def noisy(sources: Sources, **options: Any) -> tuple[Any, Noise]:
    noise = Noise(sources)
    model = tnt.Model(keras.Sequential([keras.Input((2,)), noise, layers.Dense(1)]))
    model.compile("sgd", "mse", **options)
    return model, noise


X, Y = np.ones((2 * SIZE, 2), np.float32), np.ones((2 * SIZE, 1), np.float32)


def likeness(mine: np.ndarray) -> float:
    """The largest correlation between two ranks' numbers; 1 for equal ones."""
    each = tnt.all_gather(mine[None].astype(np.float64))
    pairs = [abs(np.corrcoef(each[one], each[other])[0, 1]) for one, other in combinations(range(SIZE), 2)]
    return float(max(pairs))


def likenesses(numbers: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: likeness(values) for name, values in numbers.items()}


def fit(model: Any, **options: Any) -> Any:
    return model.fit(X, Y, batch_size=len(X), shuffle=False, verbose=0, **options)


@check
def sources() -> dict[str, Any]:
    """Every way to draw, and what a function outside of a step draws."""
    model, noise = noisy(all_sources())
    fit(model)
    found, plain = noise.numbers(), all_sources()
    serial = tf.function(lambda: {name: tf.cast(source(), tf.float32) for name, source in plain.items()})()
    # what is unseeded in a graph depends on the operations before it
    hidden = {name for name in of_tensorflow() if "seeded" not in name} | {name for name in serial if "legacy" in name}
    hidden |= {name for name in serial if "common" in name or (LEGACY and name.startswith("layer"))}
    compared = [name for name in serial if name not in hidden]
    return {
        "likeness": likenesses(found),
        "as outside": [name for name in compared if np.array_equal(serial[name], found[name])],
        "compared": compared,
        "warnings": [message for message in messages if "the step calls" in message],
    }


@check
def steps() -> dict[str, dict[str, float]]:
    """Of all kinds."""
    model, noise = noisy(a_few(), steps_per_execution=2)
    found = {}
    model.fit(np.repeat(X, 2, 0), np.repeat(Y, 2, 0), batch_size=len(X), verbose=0)
    found["train"] = noise.numbers()
    model.evaluate(X, Y, batch_size=len(X), verbose=0)
    found["test"] = noise.numbers()
    model.predict(X, batch_size=len(X), verbose=0)
    found["predict"] = noise.numbers()
    eager, noise = noisy(a_few(), run_eagerly=True)
    fit(eager)
    found["eager"] = noise.numbers()
    return {when: likenesses(numbers) for when, numbers in found.items()}


# ---------------------------------------------------------------------------------------------------- dropout's gradient

WIDTH, STEPS, BATCH, RATE = 2000, 4, 12, 0.5


class Weighted(layers.Layer):
    """Dropout, and a sum with one weight for each feature: the gradient is the mean of the masks of all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = layers.Dropout(RATE, seed=5)

    def build(self, shape: Any) -> None:
        self.factor = self.add_weight(name="factor", shape=(WIDTH,), initializer="zeros")
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        return tf.reduce_sum(self.dropout(inputs, training=training) * self.factor, 1, keepdims=True)


def gradients(wrap: Callable[[Any], Any], **options: Any) -> np.ndarray:
    """The gradient of each step, by the weights before and after it."""
    keras.utils.set_random_seed(1)
    model = wrap(keras.Sequential([keras.Input((WIDTH,)), Weighted()]))
    model.compile(keras.optimizers.SGD(1.0), lambda y_true, y_pred: y_pred, **options)
    found = []
    for _ in range(STEPS):
        before = model.get_weights()[0]
        model.train_on_batch(np.ones((BATCH, WIDTH), np.float32), np.ones((BATCH, 1), np.float32))
        found.append(before - model.get_weights()[0])
    return np.array(found, np.float64)


@check
def dropout_gradients() -> dict[str, list[float]]:
    """Their mean and variance, and the same of serial Keras."""
    found = {"ours": gradients(tnt.Model), "again": gradients(tnt.Model)}
    found["serial"] = gradients(lambda model: tnt.Model(model, parallel_strategy=tnt.ParallelStrategy.NONE))
    if not LEGACY:
        before = len(messages)
        found["xla"] = gradients(tnt.Model, jit_compile=True)
        assert messages[before:] == []  # it compiled all
    if SIZE == 2:  # switches XLA off
        found["reproducible"] = gradients(lambda model: tnt.Model(model, reproducible=2))
    return {
        **{name: [float(values.mean()), float(values.var())] for name, values in found.items()},
        "repeated": [float(np.abs(found["ours"] - found["again"]).max())],
        "steps alike": [float(max(abs(np.corrcoef(found["ours"])[np.triu_indices(STEPS, 1)])))],
    }


# ------------------------------------------------------------------------------------------------ what stays the same


@check
def states() -> list[Any]:
    """After steps in which some ranks have no sample, and generators that began differently."""
    keras.utils.set_random_seed(4 + RANK)
    if LEGACY:
        keras.backend.experimental.enable_tf_random_generator()
    model = tnt.Model(keras.Sequential([keras.Input((2,)), layers.Dropout(0.5), layers.Dense(1), layers.GaussianNoise(0.1)]))
    if LEGACY:
        keras.backend.experimental.disable_tf_random_generator()
    model.compile("sgd", "mse")
    model.fit(X[: SIZE + 1], Y[: SIZE + 1], batch_size=SIZE, epochs=2, verbose=0)
    return [adapter.unwrap(state).numpy().tolist() for state in adapter.seed_variables(model.model)]


def apart(numbers: dict[str, np.ndarray]) -> list[str]:
    """The names of those that differ between ranks."""
    each = {name: tnt.all_gather(values[None]) for name, values in numbers.items()}
    return [name for name, values in each.items() if not np.array_equal(values, np.broadcast_to(values[0], values.shape))]


def shared(source: Callable[[], Any]) -> Callable[[], Any]:
    def draw() -> Any:
        with tnt.same_noise():
            return source()

    return draw


@check
def the_same_noise() -> dict[str, list[str]]:
    keras.utils.set_random_seed(3)
    seeded = {name: source for name, source in a_few().items() if name != "normal" and not (LEGACY and "layer" in name)}
    both = {**{f"same {name}": shared(source) for name, source in seeded.items()}, **seeded}
    model, noise = noisy(both)
    fit(model)
    traced = apart(noise.numbers())
    eagerly, noise = noisy(both, run_eagerly=True)
    fit(eagerly)
    ran = apart(noise.numbers())
    return {
        "apart": [name for name in traced + ran if name.startswith("same")],
        "alike": [name for name in seeded if name not in traced or name not in ran],
    }


@check
def refused_noise() -> list[list[str]]:
    hidden, _ = noisy({"normal": shared(lambda: tf.random.normal([N], seed=1))})
    found = [raised(fit, hidden)]
    if SIZE == 2 and not LEGACY:
        noise = Noise({"normal": shared(lambda: keras.random.normal([N], seed=1))})
        model = tnt.Model(keras.Sequential([keras.Input((2,)), noise, layers.Dense(1)]), reproducible=2)
        model.compile("sgd", "mse")
        found.append(raised(fit, model))
    return found


class LateLayers(keras.Model):
    """Makes a layer and a variable in its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.out = layers.Dense(1)
        self.__dict__["late"] = []

    def call(self, inputs: Any) -> Any:
        return self.out(inputs)

    def train_step(self, data: Any) -> Any:
        if not self.late and tf.inside_function():
            random = layers.Dense(4, kernel_initializer=keras.initializers.RandomNormal(seed=1))
            random.build((None, 2))
            tensor = tf.Variable(lambda: tf.random.stateless_normal([4], [1, 2]))
            self.late.extend([random.kernel, tensor])
        return super().train_step(data)


@check
def initial_values() -> list[list[float]]:
    model = LateLayers()
    model(X)
    wrapped = tnt.Model(model)
    wrapped.compile("sgd", "mse")
    fit(wrapped)
    outside = layers.Dense(4, kernel_initializer=keras.initializers.RandomNormal(seed=1))
    outside.build((None, 2))
    expected = [outside.kernel.numpy(), tf.random.stateless_normal([4], [1, 2]).numpy()]
    return [[float(np.abs(found.numpy() - value).max()) for found, value in zip(model.late, expected, strict=True)]]


@check
def other_threads() -> bool:
    """What a thread draws that makes batches meanwhile."""
    found: list[np.ndarray] = []
    with tnt.noise_by_rank():
        thread = threading.Thread(target=lambda: found.append(tf.random.stateless_normal([N], [1, 2]).numpy()))
        thread.start()
        thread.join()
    return np.array_equal(found[0], tf.random.stateless_normal([N], [1, 2]))


@check
def random_data() -> float:
    """What a generator and a map draw belongs to the data. Ranks compare their batches in each step."""
    keras.utils.set_random_seed(6)

    def drawn() -> Iterator[tf.Tensor]:
        for index in range(4 * SIZE):
            yield tf.random.stateless_normal([2], [1, index])

    data = tf.data.Dataset.from_generator(drawn, output_signature=tf.TensorSpec([2], tf.float32))
    data = data.map(lambda x: (x + tf.random.normal([2]), tf.ones([1]))).batch(2 * SIZE)
    model = tnt.Model(keras.Sequential([keras.Input((2,)), layers.GaussianNoise(0.1), layers.Dense(1)]))
    model.compile("sgd", "mse", run_eagerly=True)
    return float(model.fit(data, epochs=2, verbose=0).history["loss"][-1])


# ----------------------------------------------------------------------------------------------- elsewhere than in a step


@check
def custom_loop() -> dict[str, float]:
    keras.utils.set_random_seed(3)
    dropout = layers.Dropout(0.5, seed=1)

    @tf.function
    def own() -> Any:
        with tnt.noise_by_rank(), tf.GradientTape():
            return dropout(tf.ones([N]), training=True), traced_before(tf.constant([1, 2]))

    @tf.function
    def common() -> Any:
        return tf.random.stateless_uniform([N], [1, 2]), traced_before(tf.constant([1, 2]))

    return {
        "own": max(likeness(numbers.numpy()) for numbers in own()),
        "common": min(likeness(numbers.numpy()) for numbers in common()),
    }


@check
def layers_that_draw() -> list[str]:
    """What the log says in two epochs."""
    logger, level = logging.getLogger("TNT_LIB"), logging.getLogger("TNT_LIB").level
    inner = keras.Sequential([keras.Input((2,)), layers.Dropout(0.5, name="inner"), layers.Dense(2)])
    quiet = [layers.Dropout(0.0, name="quiet"), layers.Dense(1)]
    model = tnt.Model(keras.Sequential([keras.Input((2,)), inner, layers.GaussianNoise(1.0, name="outer"), *quiet]))
    model.compile("sgd", "mse")
    logger.setLevel(logging.INFO)
    messages.clear()
    model.fit(X, Y, epochs=2, verbose=0)
    logger.setLevel(level)
    return [message for message in messages if message.startswith("noise:")]


@check
def functions_from_files() -> list[str]:
    module = tf.Module()
    module.sample = tf.function(lambda: tf.random.stateless_normal([N], [1, 2]), input_signature=[])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
    before = len(messages)
    model, noise = noisy({"loaded": loaded.sample, "own": lambda: tf.random.stateless_normal([N], [1, 2])})
    fit(model)
    fit(model)
    assert apart(noise.numbers()) == ["own"]
    return [message for message in messages[before:] if "the step calls" in message]


run(*sys.argv[1:])
