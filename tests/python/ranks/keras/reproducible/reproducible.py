"""Trainings whose bits must not depend on the number of ranks; what each leaves is told by hashes and exact numbers."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from typing import Any

if os.environ.get("ALTERNATING_NODES"):  # ranks that follow each other are on different nodes; read when the library starts
    os.environ["TNT_INTERNAL_NODE"] = str(int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]) % 2)

import tarantella as tnt  # isort: skip  (readies TensorFlow)
import numpy as np
import tensorflow as tf

from checks import check, raised, run
from tarantella.keras import adapter

keras = tf.keras
layers = keras.layers
V = 8
FEW = 4  # where fewer shards show as much, in half the time
SAMPLES, BATCH = 75, 20  # 8 shards divide neither a batch nor the last one
LONG = {"shards": V, "epochs": 3}

keras.utils.set_random_seed(7)  # the first dataset's shuffle depends on it, as those after the first training do
random = np.random.default_rng(1)
x = random.normal(size=(SAMPLES, 12)).astype(np.float32)
y = random.normal(size=(SAMPLES, 1)).astype(np.float32)
images = random.normal(size=(SAMPLES, 12, 12, 3)).astype(np.float32)
words = random.integers(1, 500, (SAMPLES, 10))
words[:, 5:] *= random.integers(0, 2, (SAMPLES, 5))
labels = random.integers(0, 10, SAMPLES)


def digest(arrays: Any) -> str:
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def state_of(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return [np.asarray(v) for v in (variables() if callable(variables) else variables)]


def hexadecimal(logs: dict[str, Any]) -> dict[str, list[str]]:
    return {name: [float(value).hex() for value in np.ravel(values)] for name, values in sorted(logs.items())}


def left_by(model: tnt.Model, logs: Any) -> dict[str, Any]:
    return {"weights": digest(model.get_weights()), "optimizer": digest(state_of(model.optimizer)), "logs": hexadecimal(logs)}


def shuffled(*arrays: Any, batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).shuffle(SAMPLES, seed=3).batch(batch)


def trained(
    make: Callable[[], Any],
    optimizer: Callable[[], Any],
    data: Any,
    shards: int = FEW,
    epochs: int = 2,
    validation: Any = None,
    **compiled: Any,
) -> dict[str, Any]:
    keras.utils.set_random_seed(7)
    model = tnt.Model(make(), reproducible=shards)
    model.compile(optimizer(), **{"loss": "mse", **compiled})
    history = model.fit(data, epochs=epochs, verbose=0, validation_data=validation)
    return left_by(model, history.history)


def classifier(*metrics: Any) -> dict[str, Any]:
    return {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy", *metrics]}


def cnn() -> Any:
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.RandomFlip(),
            layers.RandomTranslation(0.1, 0.1),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )


def mlp(dropout: float = 0.2) -> Any:
    return keras.Sequential([keras.Input((12,)), layers.Dense(32, activation="relu"), layers.Dropout(dropout), layers.Dense(1)])


def transformer() -> Any:
    tokens = keras.Input((10,), dtype="int32")
    embedded = layers.Embedding(500, 64)(tokens)  # its gradient is sparse, and larger than 64 KiB
    attended = layers.MultiHeadAttention(2, 16, dropout=0.1)(embedded, embedded)
    normal = layers.LayerNormalization()(layers.Add()([embedded, attended]))
    hidden = layers.Dense(64)(layers.Dense(64, activation="relu")(normal))
    normal = layers.LayerNormalization()(layers.Add()([normal, layers.Dropout(0.1)(hidden)]))
    return keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(normal)))


def with_masks() -> Any:
    return keras.Sequential([layers.Embedding(500, 8, mask_zero=True), layers.Dropout(0.2), layers.Dense(500)])


def sgd() -> Any:
    return keras.optimizers.SGD(0.02, momentum=0.9)


def adam() -> Any:
    return keras.optimizers.Adam(1e-2)


@check
def cnn_with_batch_normalization_dropout_and_augmentation() -> dict[str, Any]:
    return trained(cnn, sgd, shuffled(images, labels), **LONG, **classifier())


@check
def mlp_with_adam() -> dict[str, Any]:
    return trained(mlp, adam, shuffled(x, y), **LONG, validation=shuffled(x[:30], y[:30]), metrics=["mae"])


@check
def transformer_with_embeddings() -> dict[str, Any]:
    return trained(transformer, adam, shuffled(words, labels), **LONG, **classifier())


@check
def loss_with_a_mask() -> dict[str, Any]:
    return trained(with_masks, adam, shuffled(words, words), **classifier())


@check
def last_batch_with_fewer_samples_than_shards() -> dict[str, Any]:
    return trained(mlp, sgd, shuffled(x, y, batch=24), shards=V)


def of_unknown_length(*arrays: Any) -> tf.data.Dataset:
    """At the end of an epoch Keras starts a step without data, which must not touch metrics and random seeds."""
    return tf.data.Dataset.from_tensor_slices(arrays).filter(lambda *_: True).batch(BATCH)


@check
def data_of_unknown_length() -> dict[str, Any]:
    return trained(mlp, sgd, of_unknown_length(x, y), metrics=["mae"])


@check
def maps_before_the_batch() -> dict[str, Any]:
    """On several ranks each maps its own samples alone."""
    maps = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda sample, wanted: (2 * sample, wanted)).batch(16)
    return trained(mlp, sgd, maps)


class Own(keras.Model):
    """With a training step of its own, that returns numbers of its own and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.dropout, self.out = layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(1)
        self.steps = self.add_weight(name="steps", shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.out(self.dropout(self.hidden(inputs), training=training))

    def train_step(self, data: Any) -> dict[str, Any]:
        inputs, wanted = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(inputs, training=True) - wanted))
            total = loss + 1e-3 * tf.reduce_sum(self.out.kernel**2)
        gradients = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.steps.assign_add(1)
        return {"loss": loss, "norm": tf.linalg.global_norm(gradients)}


@check
def training_step_of_a_users_own() -> dict[str, Any]:
    keras.utils.set_random_seed(7)
    model = tnt.Model(Own(), reproducible=FEW)
    model.compile(adam())
    history = model.fit(shuffled(x, y), epochs=2, verbose=0)
    return {**left_by(model, history.history), "steps": int(model.steps.numpy())}


class Counting(layers.Layer):
    """Counts samples in a weight, and adds them up in a variable that Keras does not know."""

    def build(self, shape: Any) -> None:
        self.samples = self.add_weight(name="samples", shape=(), dtype="int64", initializer="zeros", trainable=False)
        self.total = tf.Variable(np.zeros(12, np.float32), trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.samples.assign_add(tf.shape(inputs, tf.int64)[0])
            self.total.assign_add(tf.reduce_sum(inputs, 0))
        return inputs


@check
def layer_that_counts_samples() -> dict[str, Any]:
    counting = Counting()
    found = trained(lambda: keras.Sequential([keras.Input((12,)), counting, layers.Dense(1)]), sgd, shuffled(x, y), shards=V)
    total = counting.total.numpy()
    np.testing.assert_allclose(total, 2 * x.sum(0), rtol=1e-4, atol=1e-4)
    return {**found, "samples": int(counting.samples.numpy()), "total": digest([total])}


@check
def how_often_a_training_step_is_traced() -> int:
    class Traced(Own):
        times = 0

        def train_step(self, data: Any) -> dict[str, Any]:
            Traced.times += not tf.executing_eagerly()  # a trial runs the step eagerly before
            return super().train_step(data)

    model = tnt.Model(Traced(), reproducible=V)
    model.compile(adam(), loss="mse")  # so that a call builds the model; else the step would be traced for that as well
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16, drop_remainder=True), epochs=2, verbose=0)
    return Traced.times


@check
def single_batches() -> dict[str, Any]:
    keras.utils.set_random_seed(7)
    model = tnt.Model(mlp(), reproducible=FEW)
    model.compile(adam(), loss="mse", metrics=["mae"])
    logs = {f"train {i}": model.train_on_batch(x[: 21 - i], y[: 21 - i]) for i in range(3)}
    logs |= {"test": model.test_on_batch(x[:5], y[:5]), "all": model.evaluate(x, y, batch_size=13, verbose=0)}
    return {**left_by(model, logs), "rows": [len(model.predict_on_batch(x[:5])), len(model.predict(x, verbose=0))]}


@check
def sample_weights() -> dict[str, Any]:
    weights = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    return trained(mlp, sgd, shuffled(x, y, weights), weighted_metrics=["mae"])


if not adapter.LEGACY:

    @check
    def accumulated_gradients() -> dict[str, Any]:
        return trained(mlp, lambda: keras.optimizers.Adam(1e-2, gradient_accumulation_steps=3), shuffled(x, y))

    @check
    def mixed_precision_and_clipping() -> dict[str, Any]:
        keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            return trained(mlp, lambda: keras.optimizers.SGD(1e-2, global_clipnorm=0.1), shuffled(x, y))
        finally:
            keras.mixed_precision.set_global_policy("float32")

    @check
    def steps_in_one_execution() -> dict[str, Any]:
        return trained(mlp, sgd, shuffled(x, y), steps_per_execution=2)

    @check
    def loss_that_divides_by_sample_weights() -> dict[str, Any]:
        weights = np.linspace(0, 1, SAMPLES, dtype=np.float32)
        loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        return trained(mlp, sgd, shuffled(x, y, weights), loss=loss)


# ------------------------------------------------------------------------------------------ what they are equal to


@check
def beside_plain_keras() -> dict[str, list[float]]:
    """Without random numbers and BatchNormalization, one device computes the same to rounding."""
    found = {}
    batched = tf.data.Dataset.from_tensor_slices((words, words)).batch(BATCH)
    for name, make, data, compiled in [
        ("mean", lambda: mlp(0), of_unknown_length(x, y), {"loss": "mse", "metrics": ["mae"]}),
        ("masked", lambda: keras.Sequential([layers.Embedding(500, 8, mask_zero=True), layers.Dense(500)]), batched,
         classifier()),
    ]:  # fmt: skip
        losses = []
        for options in ({"reproducible": FEW}, {"parallel_strategy": tnt.ParallelStrategy.NONE}):
            keras.utils.set_random_seed(7)
            model = tnt.Model(make(), **options)
            model.compile(sgd(), **compiled)  # Adam amplifies the rounding of gradients near zero
            losses.append(np.concatenate([np.ravel(v) for v in model.fit(data, epochs=2, verbose=0).history.values()]).tolist())
        found[name] = losses
    return found


# ------------------------------------------------------------------------------------------------- what is refused


@check
def refused() -> dict[str, list[str]]:
    def fit(make: Callable[[], Any], **arguments: Any) -> None:
        model = tnt.Model(make(), reproducible=FEW)
        model.compile(sgd(), loss="mse")
        model.fit(shuffled(x, y), verbose=0, **arguments)

    def noisy() -> Any:
        noise = layers.Lambda(lambda t: t + tf.random.normal(tf.shape(t)))
        return keras.Sequential([keras.Input((12,)), noise, layers.Dense(1)])

    generator = tf.random.Generator.from_seed(1)

    def generated() -> Any:
        noise = layers.Lambda(lambda t: t + generator.normal(tf.shape(t)))
        return keras.Sequential([keras.Input((12,)), noise, layers.Dense(1)])

    seen = tf.Variable(0.0, trainable=False)

    class Seeing(layers.Layer):
        def call(self, inputs: Any) -> Any:
            seen.assign_add(tf.reduce_sum(inputs))
            return inputs

    class Twice(Own):
        def train_step(self, data: Any) -> dict[str, Any]:
            super().train_step(data)
            return super().train_step(data)

    class Late(Own):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {**super().train_step(data), "norm": tf.linalg.global_norm(self.trainable_variables)}

    class Counted(Own):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {**super().train_step(data), "step": tf.cast(self.optimizer.iterations, tf.float32)}

    synchronized = keras.Sequential([keras.Input((12,)), tnt.keras.layers.SyncBatchNormalization(), layers.Dense(1)])
    return {
        "no power of two": raised(tnt.Model, mlp(), reproducible=6),
        "too many ranks": raised(lambda: tnt.plan(tnt.Model(mlp(), reproducible=tnt.get_size() // 2 or 3))),
        "bfloat16": raised(tnt.Model, mlp(), reproducible=V, gradient_dtype="bfloat16"),
        "hook": raised(tnt.Model, mlp(), reproducible=V, bucket_hook=print),
        "random": raised(fit, noisy),
        "generator": raised(fit, generated),
        "twice": raised(fit, Twice),
        "late": raised(fit, Late),
        "counted": raised(fit, Counted),
        "early": raised(fit, lambda: keras.Sequential([keras.Input((12,)), layers.SpectralNormalization(layers.Dense(1))])),
        "unknown": raised(fit, lambda: keras.Sequential([keras.Input((12,)), Seeing(), layers.Dense(1)])),
        "synchronized": raised(fit, lambda: synchronized),
        "own data": raised(fit, mlp, tnt_distribute_dataset=False),
    }


run(*sys.argv[1:])
