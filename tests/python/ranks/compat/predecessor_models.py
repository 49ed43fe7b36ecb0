"""Models, files and callbacks as scripts of the predecessor use them, with either Keras."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras import adapter

RANK, SIZE = tnt.get_rank(), tnt.get_size()
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
LAST = SIZE - 1
of_models = adapter.keras.models
folder = Path(sys.argv[1])
strategies = tnt.ParallelStrategy
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(10)
messages = log_messages()


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])


def flat(model: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


def fitted(*args: Any, **kwargs: Any) -> list[float]:
    keras.utils.set_random_seed(2)
    model = tnt.Model(plain(), *args, **kwargs)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(dataset, verbose=0)
    return flat(model)


# ------------------------------------------------------------------------------------------------------ tnt.Model


@check
def strategies_that_train() -> dict[str, list[float]]:
    """On one rank also the pipeline of one part."""
    ways = {
        "by position": fitted(strategies.DATA, 4),
        "by name": fitted(parallel_strategy=strategies.DATA, num_pipeline_stages=1),
        "all": fitted(strategies.ALL),
    }
    if SIZE == 1:
        ways["one part"] = fitted(strategies.PIPELINING)
    return {"plain": fitted(strategies.NONE), **ways}


@check
def what_is_refused() -> dict[str, list[str]]:
    in_parts = keras.Sequential([keras.Input((4,)), layers.Dense(3), tnt.keras.layers.SplitLayer(), layers.Dense(1)])
    return {
        "stages of a pipeline": raised(tnt.Model, plain(), strategies.PIPELINING, 2),
        "stages of all": raised(tnt.Model, plain(), strategies.ALL, num_pipeline_stages=2),
        "two parts": raised(tnt.Model, in_parts, strategies.ALL),
        "no stages": raised(tnt.Model, plain(), strategies.DATA, 0),
        "a type for stages": raised(tnt.Model, plain(), strategies.DATA, "bfloat16"),
        "a fourth": raised(tnt.Model, plain(), strategies.DATA, 1, "bfloat16"),
        **({} if SIZE == 1 else {"one part": raised(tnt.Model, plain(), strategies.PIPELINING)}),
    }


@check
def options_in_a_copy() -> list[Any]:
    """The options are keyword arguments alone, also where a pickle makes the model anew."""
    model = tnt.Model(plain(), gradient_dtype="float16", fusion_threshold=0)
    copied = pickle.loads(pickle.dumps(model))
    return [[len(tnt.plan(one)) for one in (model, copied)], flat(copied) == flat(model)]


@check
def attributes() -> list[Any]:
    model = tnt.Model(plain())
    before = model.compiled
    model.compile("sgd", "mse")
    model.barrier.execute()
    named = tnt.Model(plain())
    named.rank = 17  # of the user's own
    return [model.group.group, model.rank, before, model.compiled, named.rank, raised(getattr, model, "ranks")[0]]


# ------------------------------------------------------------------------------------------------------------ files


def late(read: Callable[..., Any]) -> Callable[..., Any]:
    """The reading of the last rank, which would find the file deleted if the others had not waited."""

    def wait_and_read(path: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        while RANK == LAST and Path(path).exists() and time.monotonic() - begin < 0.5:
            time.sleep(0.01)
        return read(path, *args, **kwargs)

    return wait_and_read


@check
def loaded_and_deleted() -> list[Any]:
    """Rank 0 deletes each file as soon as it has it."""
    model = tnt.Model(plain())
    model.compile("sgd", "mse")
    whole, weights = folder / "whole.keras", folder / "some.weights.h5"
    model.save(whole)
    model.save_weights(weights)
    original = of_models.load_model
    of_models.load_model = late(original)
    try:
        loaded = tnt.models.load_model(whole)
    finally:
        of_models.load_model = original
    if RANK == 0:
        whole.unlink()
    other = tnt.Model(plain())
    other.model.load_weights = late(other.model.load_weights)
    other.load_weights(weights)
    if RANK == 0:
        weights.unlink()
    return [loaded.rank, flat(loaded) == flat(model), flat(other) == flat(model)]


@check
def one_rank_cannot_read() -> list[list[str]]:
    model = tnt.Model(plain())
    path = folder / "there.weights.h5"
    model.save_weights(path)
    model.save(folder / "there.keras")
    elsewhere = folder / "nowhere"
    return [
        raised(model.load_weights, elsewhere / path.name if RANK == LAST else path),
        raised(tnt.models.load_model, elsewhere / "there.keras" if RANK == LAST else folder / "there.keras"),
    ]


@check
def errors_name_the_file() -> list[Any]:
    """Of a folder that is not there, of a file in the place of a folder, and of a name that Keras 3 refuses."""
    model = tnt.Model(plain())
    places = [
        (model.save, folder / "no such folder" / "model.keras"),
        (lambda path: model.save_weights(path / "inside"), folder / "there.weights.h5"),
        *([] if LEGACY else [(model.save, folder / "model.nonsense"), (model.save_weights, folder / "model.nonsense")]),
    ]
    errors = [[*raised(save, path), str(path)] for save, path in places]
    return [errors, [file.name for file in folder.iterdir() if file.name.startswith(".")]]


@check
def nothing_is_overwritten() -> list[Any]:
    """Nobody answers a question in a job."""
    model = tnt.Model(plain())
    path = folder / "kept.weights.h5"
    model.save_weights(path, overwrite=False)
    before = path.read_bytes()
    model.set_weights([w + 1 for w in model.get_weights()])
    tnt.barrier()
    errors = [raised(model.save_weights, path, overwrite=False), raised(model.save, folder / "there.keras", False)]
    kept = path.read_bytes() == before
    tnt.barrier()
    model.save_weights(path)
    return [*errors, kept, path.read_bytes() == before]


@check
def saved_model_folder() -> list[Any]:
    """Legacy Keras alone: neither it nor we have the optimizer's state, and the log says so. A file has it."""
    if not LEGACY:
        return []
    model = tnt.Model(plain())
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(dataset, verbose=0)
    steps = []
    said = []
    for name in ("saved", "file.keras"):
        model.save(folder / name)
        loaded = tnt.models.load_model(folder / name)
        alone = keras.models.load_model(folder / name)
        steps.append([int(loaded.optimizer.iterations), int(alone.optimizer.iterations)])
        said.append([text for text in messages if "optimizer's state" in text and name in text])
    loaded.fit(dataset, verbose=0)
    tnt.models.load_model(folder / "saved", compile=False)
    return [steps, said, len([text for text in messages if "optimizer's state" in text])]


# ------------------------------------------------------------------------------------------------- other names


@check
def names() -> dict[str, Any]:
    inputs = keras.Input((4,))
    hidden = layers.Dense(3, activation="tanh")(inputs)
    outputs = {"a": layers.Dense(1, name="a")(hidden), "b": layers.Dense(1, name="b")(hidden)}
    model = tnt.Model(keras.Model(inputs, outputs))
    losses = {"a": "mse", "b": tnt.keras.losses.ZeroLoss()}
    model.compile("sgd", losses, metrics={"a": ["mae"], "b": [tnt.keras.metrics.ZeroMetric()]})
    of_b = [np.asarray(w) for w in model.get_layer("b").get_weights()]
    logs = model.evaluate(x, {"a": x[:, :1], "b": x[:, :1]}, verbose=0, return_dict=True)
    tnt.tnt_initializer.init()
    tnt.tnt_initializer.setup_gpus(RANK, 0)
    return {
        "zero": [logs["loss"] > 0, logs["b_zero_metric"], len(of_b)],
        "utilities": raised(getattr, tnt.keras.utilities, "something"),
        "yaml": raised(tnt.models.model_from_yaml, "a: 1"),
        "gpus": raised(tnt.tnt_initializer.setup_gpus, RANK, 99),
    }


@check
def optimizer() -> list[Any]:
    of_keras = keras.optimizers.SGD(0.1)
    wrapped = tnt.optimizers.Optimizer(of_keras, name="mine", group=tnt.Group())
    variable = keras.Variable([1.0]) if hasattr(keras, "Variable") else tf.Variable([1.0])
    wrapped.apply_gradients([(tf.constant([float(RANK)]), variable)])
    part = raised(tnt.optimizers.Optimizer, keras.optimizers.SGD(0.1), group=tnt.Group([0]))
    return [wrapped is of_keras, wrapped.name, float(np.asarray(variable)[0]), part]


@check
def base_logger() -> list[list[str]]:
    if not LEGACY:
        return []
    model = tnt.Model(plain())
    model.compile("sgd", "mse")
    logger = keras.callbacks.BaseLogger()
    return [raised(model.fit, dataset, verbose=0, callbacks=[logger]), raised(tnt.keras.callbacks.Callback, logger)]


run(*sys.argv[1:])
