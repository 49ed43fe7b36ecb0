"""`tnt.models` and what else makes and writes models, on several ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run

RANK = tnt.get_rank()
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(1)])


def flat(model: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


@check
def sequential() -> list[Any]:
    model = tnt.Sequential([keras.Input((4,)), layers.Dense(3)], name="mine", fusion_threshold=0)
    model.add(layers.Dense(1))
    model.compile("sgd", "mse")
    model.fit(dataset, verbose=0)
    again = tnt.Sequential.from_config(model.get_config())
    kinds = [isinstance(model, keras.Sequential), isinstance(model, tnt.Model)]
    wrapped_again = tnt.Model(model)
    wrapped_again.compile("sgd", "mse")
    wrapped_again.fit(dataset, verbose=0)
    inside = type(wrapped_again.model) is keras.Sequential
    return [*kinds, model.name, len(again.layers), type(again).__name__, inside]


@check
def goes_on_where_the_file_was_written() -> list[Any]:
    """Weights and optimizer: three epochs at once are one, a file, and two."""
    keras.utils.set_random_seed(3)
    whole, first = tnt.Model(plain()), tnt.Model(plain())
    first.set_weights(whole.get_weights())
    for model in (whole, first):
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    whole.fit(dataset, epochs=3, verbose=0)
    first.fit(dataset, epochs=1, verbose=0)
    path = folder / "first.keras"
    tnt.models.save_model(first, path)
    second = tnt.models.load_model(path)
    second.fit(dataset, epochs=3, initial_epoch=1, verbose=0)
    return [
        np.allclose(flat(whole), flat(second), atol=1e-6),
        type(second).__name__,
        type(second.dist_optimizer).__name__,
        flat(second),
    ]


@check
def other_ways_to_a_model() -> list[Any]:
    model = tnt.Model(plain())
    functional = tnt.Model(keras.Model(model.inputs, model.outputs))
    made = {
        "clone": tnt.models.clone_model(model),
        "config": tnt.models.model_from_config(model.get_config()),
        "functional": tnt.Model.from_config(functional.get_config()),
        "json": tnt.models.model_from_json(model.to_json()),
    }
    for one in made.values():
        one.compile("sgd", "mse")
        one.fit(dataset, verbose=0)
    kinds = {name: [type(one).__name__, len(one.weights)] for name, one in made.items()}
    return [kinds, {name: flat(one) for name, one in made.items()}]


@check
def not_a_configuration() -> list[list[str]]:
    config, model = {"no": "model"}, "a model"
    return [raised(tnt.models.model_from_config, config), raised(tnt.models.save_model, model, folder / "no.keras")]


@check
def export() -> list[Any]:
    """A SavedModel, written by the master, twice; of batches trained one by one, the averages of all ranks are in it."""
    model = tnt.Model(plain())
    model.compile("sgd", "mse")
    path = folder / "exported"
    for _ in range(2):
        model.train_on_batch(x, y)
        model.export(path, verbose=False)
    loaded = tf.saved_model.load(path)
    same = np.allclose(loaded.serve(x), model.predict(x, verbose=0), atol=1e-6)
    return [same, sorted(file.name for file in folder.iterdir() if "exported" in file.name)]


@check
def disk_full() -> list[Any]:
    """The old file stays, nothing is left beside it, and every rank hears of it."""
    model = tnt.Model(plain())
    path = folder / "kept.keras"
    model.save(path)
    before = path.read_bytes()
    tnt.barrier()

    def full(*args: Any, **kwargs: Any) -> None:
        Path(args[0]).write_bytes(before[:100])
        raise OSError(28, "No space left on device")

    model.model.save = full
    error = raised(model.save, path)
    return [error, path.read_bytes() == before, [f.name for f in folder.iterdir() if f.name.startswith(".kept")]]


run(sys.argv[1])
