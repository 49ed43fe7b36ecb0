"""SyncBatchNormalization beside serial BatchNormalization of whole batches, on parts of different sizes, some of them empty."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, log_messages, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
rng = np.random.default_rng(0)
SyncBatchNormalization = tnt.keras.layers.SyncBatchNormalization
messages = log_messages()


def synchronized(**kwargs: Any) -> Any:
    return layers.BatchNormalization(synchronized=True, **kwargs)


def dense(normalization: Any) -> Any:
    return [
        keras.Input((5,)),
        layers.Dense(6, activation="tanh"),
        normalization(momentum=0.8),
        layers.Dense(4, activation="tanh"),
        normalization(momentum=0.8, center=False),
        layers.Dense(2),
    ]


def conv(normalization: Any) -> Any:
    return [
        keras.Input((6, 6, 3)),
        layers.Conv2D(4, 3, use_bias=False),
        normalization(),
        layers.Activation("tanh"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2),
    ]


def masked(normalization: Any) -> Any:
    return [
        keras.Input((4,), dtype="int32"),
        layers.Embedding(9, 5, mask_zero=True),
        normalization(),
        layers.GlobalAveragePooling1D(),
        layers.Dense(2),
    ]


def samples(make: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    shape = make(layers.BatchNormalization)[0].shape[1:]
    x = rng.integers(0, 9, (n, *shape)) if make is masked else rng.normal(3.0, 2.0, (n, *shape)).astype(np.float32)
    return x, rng.normal(size=(n, 2)).astype(np.float32)


def model_of(make: Any, normalization: Any) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(make(normalization))


def trained(model: Any, x: Any, y: Any) -> list[np.ndarray]:
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    return [np.array(history.history["loss"]), *model.get_weights()]


def apart(ours: list[np.ndarray], serial: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, serial, strict=True))


def equal(arrays: list[np.ndarray]) -> bool:
    flat = np.concatenate([np.ravel(array) for array in arrays])
    return bool((tnt.all_reduce(flat, "max") == tnt.all_reduce(flat, "min")).all())


@check
def training() -> dict[str, list[Any]]:
    """By how much losses and weights, averages included, differ from serial ones, and whether ranks have the same bits."""
    found = {}
    for make in (dense, conv, masked):
        x, y = samples(make, 26)  # of the last batch, with 2 samples, the last rank has none
        serial = trained(tnt.Model(model_of(make, layers.BatchNormalization), tnt.ParallelStrategy.NONE), x, y)
        for kind in (SyncBatchNormalization, synchronized) if make is dense else (SyncBatchNormalization,):
            ours = trained(tnt.Model(model_of(make, kind)), x, y)
            found[f"{make.__name__} {kind.__name__}"] = [apart(ours, serial), equal(ours)]
    local = trained(tnt.Model(model_of(dense, layers.BatchNormalization)), *samples(dense, 26))
    found["local"] = [apart(local, trained(tnt.Model(model_of(dense, SyncBatchNormalization)), *samples(dense, 26))), True]
    return found


@check
def own_data() -> list[Any]:
    """Batches of each rank's own, of different sizes."""
    x, y = samples(dense, 26)
    serial = trained(tnt.Model(model_of(dense, layers.BatchNormalization), tnt.ParallelStrategy.NONE), x, y)

    def parts() -> Any:
        for begin in range(0, 26, 8):
            cuts = [begin, begin + 1, begin + 2, min(begin + 8, 26)]
            own = slice(cuts[RANK], max(cuts[RANK + 1], cuts[RANK] + 1)) if cuts[RANK] < 26 else slice(0, 0)
            yield x[own], y[own]

    x, y = x[:24], y[:24]
    serial = trained(tnt.Model(model_of(dense, layers.BatchNormalization), tnt.ParallelStrategy.NONE), x, y)
    dataset = tf.data.Dataset.from_generator(
        lambda: (part for part in list(parts())[:3]),
        output_signature=(tf.TensorSpec((None, 5), tf.float32), tf.TensorSpec((None, 2), tf.float32)),
    )
    model = tnt.Model(model_of(dense, SyncBatchNormalization))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    losses = model.fit(dataset, epochs=3, verbose=0, tnt_distribute_dataset=False).history["loss"]
    return [apart([np.array(losses), *model.get_weights()], serial), equal(model.get_weights())]


@check
def custom_loop() -> list[Any]:
    """Gradients and outputs by a tape, each rank with another number of samples; graph and eager."""
    x, y = samples(dense, 12)
    cuts = [0, 1, 5, 12]
    mine = slice(cuts[RANK], cuts[RANK + 1])

    def gradients(model: Any, tape: Any, own: slice, **weight: Any) -> Any:
        with tape:
            outputs = model(x[own], training=True)
            loss = tf.reduce_mean(tf.square(outputs - y[own]))
        return outputs, tape.gradient(loss, model.trainable_variables, **weight)

    serial = model_of(dense, layers.BatchNormalization)
    expected, truth = gradients(serial, tf.GradientTape(), slice(0, 12))
    found = []
    for wrap in (lambda function: function, tf.function):
        model = model_of(dense, SyncBatchNormalization)

        def step(model: Any = model) -> Any:
            tape = tnt.DistributedGradientTape(tf.GradientTape())
            return gradients(model, tape, mine, samples=mine.stop - mine.start)

        outputs, ours = wrap(step)()
        found += [
            apart([outputs.numpy()], [expected.numpy()[mine]]),
            apart([g.numpy() for g in ours], [g.numpy() for g in truth]),
            apart(model.get_weights(), serial.get_weights()),
        ]
    return found


@check
def compiled_by_xla() -> list[Any]:
    x, y = samples(dense, 24)
    serial = trained(tnt.Model(model_of(dense, layers.BatchNormalization), tnt.ParallelStrategy.NONE), x, y)
    model = tnt.Model(model_of(dense, SyncBatchNormalization))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", jit_compile=True)
    losses = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]
    return [apart([np.array(losses), *model.get_weights()], serial)]


@check
def copies_and_files() -> list[str]:
    """What becomes of the layer in a clone, and what a file of it holds."""
    model = tnt.Model(model_of(dense, SyncBatchNormalization))
    model.compile("sgd", "mse")
    model.save(Path(sys.argv[1], "model.keras"))
    clone = keras.models.clone_model(model.model)
    loaded = keras.saving.load_model(Path(sys.argv[1], "model.keras"))
    again = loaded.layers[1]
    return [str(isinstance(clone.layers[1], SyncBatchNormalization)), type(again).__name__, str(again.synchronized)]


@check
def small_batches() -> list[Any]:
    """How often is warned of micro-batches, of which sizes and layers."""
    x, y = samples(dense, 60)
    found = []
    for kind, size in ((layers.BatchNormalization, 48), (layers.BatchNormalization, 47), (SyncBatchNormalization, 12)):
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(size).prefetch(1)
        for data in ({"x": x, "y": y, "batch_size": size}, {"x": dataset}):
            del messages[:]
            model = tnt.Model(model_of(dense, kind))
            model.compile("sgd", "mse")
            for _ in range(2 if size == 48 else 1):
                model.fit(**data, verbose=0)
            found.append([m for m in messages if "Batch Normalization" in m])
    return found


run(sys.argv[1])
