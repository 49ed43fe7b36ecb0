"""What packages on top of Keras do: methods of their own, functions made anew, callbacks that write, models made by chance."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import client_callbacks  # noqa: F401  (its checks run, too)
import tarantella as tnt
from checks import check, log_messages, raised, run

RANK = tnt.get_rank()
LEGACY = hasattr(keras, "__internal__")
folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.uniform(0, 255, (40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True) / 255


def dense(units: int = 1, **options: Any) -> Any:
    return keras.layers.Dense(units, **options)


def both(make: Callable[[], Any], use: Callable[[Any], Any]) -> list[float]:
    """What `use` gives for a plain model and one on all ranks, which begin alike: the largest relative difference, and size."""
    results = []
    for plain in (True, False):
        keras.utils.set_random_seed(7)
        strategy = tnt.ParallelStrategy.NONE if plain else tnt.ParallelStrategy.DATA
        found = use(tnt.Model(make(), strategy))
        results.append([np.asarray(value, np.float64) for value in tf.nest.flatten(found)])
    differences = [float((np.abs(a - b) / np.maximum(1, np.abs(a))).max()) for a, b in zip(*results, strict=True)]
    return [max(differences), float(np.abs(results[0][0]).max())]


@check
def adapted_words() -> list[float]:
    """Words that a layer learnt from data, which legacy Keras has among the variables of the model."""
    words = np.array([["a"], ["b"], ["c"], ["d"], ["b"]] * 8)
    batches = tf.data.Dataset.from_tensor_slices((words, y)).batch(16)

    def make() -> Any:
        lookup = keras.layers.StringLookup(output_mode="one_hot")
        lookup.adapt(words)
        inputs = keras.Input((1,), dtype="string")
        return keras.Model(inputs, dense()(lookup(inputs)))

    def use(model: Any) -> Any:
        model.compile("sgd", "mse")
        return model.fit(batches, epochs=2, verbose=0).history["loss"], model.predict(batches, verbose=0)

    return both(make, use)


# --------------------------------------------------------------------------------- classes with methods of their own


class Scaled(keras.Model):
    """Divides its data by 255 in methods of its own; its validation in `fit` prepares the data again."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = dense()

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def fit(self, x: Any, y: Any = None, times: int = 1, **options: Any) -> Any:
        histories = [super(Scaled, self).fit(x / 255.0, y, **options).history for _ in range(times)]
        return [history["loss"] + history.get("val_loss", []) for history in histories]

    def evaluate(self, x: Any, y: Any = None, **options: Any) -> Any:
        options.pop("_use_cached_eval_dataset", None)
        return super().evaluate(x / 255.0, y, **options)

    def predict(self, x: Any, **options: Any) -> Any:
        return super().predict(x / 255.0, **options) * 2

    def train_on_batch(self, x: Any, y: Any = None, **options: Any) -> Any:
        return super().train_on_batch(x / 255.0, y, **options)

    def test_on_batch(self, x: Any, y: Any = None, **options: Any) -> Any:
        return super().test_on_batch(x / 255.0, y, **options)

    def predict_on_batch(self, x: Any) -> Any:
        return super().predict_on_batch(x / 255.0)


class Cached(Scaled):
    """Leaves the validation in `fit` to the data that Keras keeps."""

    def evaluate(self, x: Any, y: Any = None, **options: Any) -> Any:
        if options.get("_use_cached_eval_dataset"):
            return keras.Model.evaluate(self, x, y, **options)
        return super().evaluate(x, y, **options)


class Loop(Scaled):
    """A `fit` that is a loop over single batches, and ends with an evaluation."""

    def fit(self, x: Any, y: Any = None, **options: Any) -> Any:
        losses = [self.train_on_batch(x[i : i + 8], y[i : i + 8]) for i in range(0, len(x), 8)]
        return [*losses, self.evaluate(x, y, verbose=0), *self.predict(x, verbose=0)]


def trained(model: Any, **options: Any) -> Any:
    model.compile("sgd", "mse")
    return [model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False, **options), model.get_weights()]


@check
def own_fit_evaluate_and_predict() -> list[list[float]]:
    def use(model: Any) -> Any:
        found = trained(model, times=2, validation_data=(x[:20], y[:20]))
        return [found, model.evaluate(x, y, batch_size=8, verbose=0), model.predict(x, batch_size=8, verbose=0)]

    return [both(Scaled, use), both(Cached, use)]


@check
def own_methods_for_single_batches() -> list[float]:
    def use(model: Any) -> Any:
        model.compile("sgd", "mse")
        losses = [model.train_on_batch(x[i : i + 10], y[i : i + 10]) for i in range(0, 40, 10)]
        return [losses, model.test_on_batch(x, y), np.asarray(model.predict_on_batch(x))]

    return both(Scaled, use)


@check
def an_own_loop_over_single_batches() -> list[float]:
    return both(Loop, trained)


@check
def an_own_predict_on_the_master_alone() -> list[Any]:
    model = tnt.Model(Scaled())
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=20, verbose=0)
    found = model.predict(x, batch_size=8, verbose=0, tnt_output_on_all_devices=False)
    return [found is None, RANK]


# ------------------------------------------------------------------------------------- functions that are made anew


@check
def functions_made_anew() -> list[float]:
    """After a client asks Keras for a new function: predictions over what the model itself computes, for each way to ask."""
    scale = [1.0]

    def forget(model: Any) -> None:
        model.model.predict_function = None

    def force(model: Any) -> None:
        model.model.make_predict_function(force=True)

    found = []
    for renew in (forget, force):
        inner = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda t: t * scale[0])])
        model = tnt.Model(inner)
        scale[0] = 1.0
        model.predict(x, verbose=0)
        scale[0] = 3.0
        stale = model.predict(x, verbose=0)  # as in plain Keras
        renew(model)
        found += [float((stale / x).max()), float((model.predict(x, verbose=0) / x).min())]
    return found


@check
def quantized() -> list[float]:
    """The largest difference of predictions from the model itself, before and after, and between before and after."""
    if LEGACY:
        return []
    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), dense(16, activation="relu"), dense()]))
    model.compile("sgd", "mse")
    before, loss = model.predict(x, verbose=0), model.evaluate(x, y, verbose=0)
    model.quantize("int8")
    after, new_loss = model.predict(x, verbose=0), model.evaluate(x, y, verbose=0)
    direct = np.asarray(model.model(x))
    return [float(np.abs(after - direct).max()), float(np.abs(after - before).max()), abs(float(new_loss) - float(loss))]


# --------------------------------------------------------------------------------- models that differ between ranks


def fitted(*layers: Any, optimizer: Any = None, **options: Any) -> list[str]:
    """What `fit` raises for a model whose layers were made with the names a, b, c."""
    model = tnt.Model(keras.Sequential([keras.Input((4,)), *layers, dense(name="last")]))
    model.compile(**{"optimizer": optimizer or "sgd", "loss": "mse", **options})
    return raised(model.fit, x / 255, y, batch_size=8, epochs=1, verbose=0)


class Plain(keras.layers.Layer):
    """A layer that does not say how it was made."""

    def __init__(self, factor: Any) -> None:
        super().__init__(name="plain")
        self.factor = factor

    def get_config(self) -> Any:
        raise NotImplementedError("as Keras does where it cannot know")

    def call(self, inputs: Any) -> Any:
        return inputs * self.factor


def scaled_loss(factor: float) -> Callable[[Any, Any], Any]:
    return lambda y_true, y_pred: tf.reduce_mean(tf.square(y_true - y_pred), -1) * factor


@check
def models_that_differ() -> dict[str, list[str]]:
    optimizers = keras.optimizers
    schedule = optimizers.schedules.ExponentialDecay(0.01, 4, [0.9, 0.5][RANK])
    regularizer = keras.regularizers.L2([1e-1, 1e-4][RANK])
    return {
        "activation": fitted(dense(8, activation=["relu", "tanh"][RANK], name="a")),
        "regularizer": fitted(dense(8, kernel_regularizer=regularizer, name="a")),
        "dropout": fitted(keras.layers.Dropout([0.1, 0.5][RANK], name="a")),
        "loss": fitted(loss=["mse", "mae"][RANK]),
        "own loss": fitted(loss=scaled_loss([1.0, 2.0][RANK])),
        "metric": fitted(metrics=[["mae"], ["mse"]][RANK]),
        "rate": fitted(optimizer=optimizers.SGD([0.01, 0.001][RANK])),
        "momentum": fitted(optimizer=optimizers.SGD(0.01, momentum=[0.5, 0.9][RANK])),
        "beta": fitted(optimizer=optimizers.Adam(0.01, beta_2=[0.999, 0.9][RANK])),
        "schedule": fitted(optimizer=optimizers.SGD(schedule)),
        "class": fitted(optimizer=[optimizers.Adam(), optimizers.Nadam()][RANK]),
        "lambda": fitted(keras.layers.Lambda([lambda t: t * 2, lambda t: t * 3][RANK], name="a")),
    }


@check
def models_that_are_the_same() -> list[Any]:
    """Those that Keras cannot describe, and those made of functions, pass; the log names the former."""
    said = log_messages()
    factor = 2.0
    errors = [
        fitted(keras.layers.Lambda(lambda t: t * factor, name="a"), loss=scaled_loss(0.5)),
        fitted(Plain(2.0), loss=functools.partial(keras.losses.huber, delta=0.5)),
        fitted(keras.layers.Dropout(0.5, seed=RANK, name="a"), optimizer=keras.optimizers.Adam(0.01)),
    ]
    return [errors, [message for message in said if "not compared" in message]]


class Drifting(keras.optimizers.SGD):
    """Its second step is another one on each rank, and its configuration does not say so."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any = None) -> None:
        later = tf.cast(tf.convert_to_tensor(self.iterations) > 0, tf.float32)
        variable.assign(variable - 0.01 * gradient * (1.0 + RANK * later))


@check
def weights_that_drift() -> list[str]:
    return fitted(dense(8, name="a"), optimizer=Drifting(0.01))


@check
def a_loop_without_an_optimizer() -> list[Any]:
    """`save` after ranks have changed their weights by themselves; after the master has alone; after nobody has."""
    found = []
    for changing in ((0, 1), (0,), ()):
        keras.utils.set_random_seed(1)
        model = tnt.Model(keras.Sequential([keras.Input((4,)), dense(name="d")]))
        if RANK in changing:
            for variable in model.trainable_variables:
                variable.assign(variable + 1.0 + RANK)
        found.append(raised(model.save, folder / "loop.keras"))
    return found


@check
def what_calls_lose() -> list[Any]:
    """Two methods after ranks have changed weights by themselves, alike, on the master; after `set_weights`; before `fit`."""

    def compiled() -> Any:
        model = tnt.Model(keras.Sequential([keras.Input((4,)), dense(name="d")]))
        model.compile(keras.optimizers.SGD(1e-7), "mse")
        model.fit(x, y, batch_size=8, verbose=0)
        return model

    def change(model: Any, by: float) -> None:
        for variable in model.trainable_variables:
            variable.assign(variable + by)

    found: list[Any] = []
    for call in (lambda model: model.evaluate(x, y, verbose=0), lambda model: model.predict(x, verbose=0)):
        for by in (1.0 + RANK, 1.0, -RANK + 1.0):
            model = compiled()
            change(model, by)
            found.append(raised(lambda call=call, model=model: call(model)))
    model = compiled()
    model.set_weights([RANK + weight for weight in model.get_weights()])
    found.append(raised(lambda: model.evaluate(x, y, verbose=0)))
    said = log_messages()
    model.fit(x, y, batch_size=8, verbose=0)
    change(model, RANK)
    model.fit(x, y, batch_size=8, verbose=0)
    found.append([line for line in said if "by itself" in line])
    return found


class Tuner:
    """Takes the arguments of KerasTuner's tuners, and looks into its folder."""

    def __init__(self, build: Any, seed: Any = None, directory: Any = None, project_name: Any = None, overwrite: bool = False):
        self.seed, self.folder = seed, Path(directory, project_name)
        self.found = sorted(file.name for file in self.folder.glob("*"))
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "oracle.json").write_text(str(seed))


@check
def tuners() -> list[Any]:
    """A search, one that goes on with it, one with a seed: the seeds, what they find, whether the folder is the given one."""
    found = []
    for options in ({}, {}, {"seed": 5, "overwrite": True}):
        tuner = tnt.tuner(Tuner, None, directory=folder / "search", project_name="p", **options)
        found.append([tuner.seed, tuner.found if not options else [], tuner.folder == folder / "search" / "p"])
        tnt.barrier()
    return found


# ------------------------------------------------------------------------------------------------ data for validation


@check
def hooks_of_validation_data() -> list[Any]:
    """The calls that Keras makes of the data's hooks, in plain Keras and on all ranks."""
    kind = keras.utils.Sequence if LEGACY else keras.utils.PyDataset

    class Data(kind):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            if not LEGACY:
                super().__init__()
            self.calls: list[str] = []

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            return x[i * 8 : i * 8 + 8], y[i * 8 : i * 8 + 8]

        def on_epoch_begin(self) -> None:
            self.calls.append("begin")

        def on_epoch_end(self) -> None:
            self.calls.append("end")

    logs = []
    for strategy in (tnt.ParallelStrategy.NONE, tnt.ParallelStrategy.DATA):
        model = tnt.Model(keras.Sequential([keras.Input((4,)), dense()]), strategy)
        model.compile("sgd", "mse")
        data, to_evaluate, to_predict = Data(), Data(), Data()
        model.fit(x, y, epochs=2, verbose=0, validation_data=data)
        model.evaluate(to_evaluate, verbose=0)
        model.predict(to_predict, verbose=0)
        logs.append([data.calls, to_evaluate.calls, to_predict.calls])
    return logs


run(*sys.argv[1:])
