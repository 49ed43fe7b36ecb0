"""What `tnt.Model` is beside a trainer: a Keras model, with clear words about what it cannot do."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run
from tarantella.keras.data import gather

RANK, SIZE = tnt.get_rank(), tnt.get_size()
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


def plain(**last: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1, name="second", **last)])


def compiled(
    model: Any = None, optimizer: Any = "sgd", loss: Any = "mse", options: Mapping[str, Any] = MappingProxyType({}), **how: Any
) -> Any:
    wrapped = tnt.Model(plain() if model is None else model, **options)
    wrapped.compile(optimizer, loss, **how)
    return wrapped


def flat(model: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


# ---------------------------------------------------------------------------------------------------- what it is


@check
def looks_like_the_model_inside() -> list[Any]:
    inner = plain()
    wrapped = tnt.Model(inner)
    wrapped.note = "kept by the model"
    inner.trainable = False
    return [
        isinstance(wrapped, keras.Model),
        isinstance(wrapped, keras.Sequential),
        wrapped.model is inner,
        inner.note,
        wrapped.trainable,
        [layer.name for layer in wrapped.layers],
        np.allclose(wrapped(x), inner(x)),
        {"fit", "stats", "layers"} <= set(dir(wrapped)),
        repr(wrapped).startswith("<tarantella.Model of <Sequential"),
        raised(getattr, wrapped, "no_such_thing")[0],
        tnt.Model(wrapped).model is inner,
    ]


@check
def what_cannot_be_wrapped() -> list[list[str]]:
    return [
        raised(tnt.Model, "a model"),
        raised(tnt.Model, layers.Dense(3)),
        raised(tnt.Model, None),
        raised(tnt.Model, plain(), parallel_strategy="data"),
    ]


@check
def hooks_leave_nothing() -> list[list[str]]:
    inner = plain()
    wrapped = compiled(inner)
    before = [set(inner.__dict__), set(wrapped.optimizer.__dict__)]
    wrapped.fit(dataset, verbose=0)
    wrapped.evaluate(dataset, verbose=0)
    after = [set(inner.__dict__), set(wrapped.optimizer.__dict__)]
    return [sorted(b - a) for a, b in zip(before, after, strict=True)]


@check
def the_model_inside_stays_plain() -> list[float]:
    """Evaluated alone by each rank, before and after all ranks did it together."""
    wrapped = compiled()
    wrapped.fit(dataset, verbose=0)
    alone = [wrapped.model.evaluate(dataset, verbose=0) for _ in range(2)]
    return [*alone, wrapped.evaluate(dataset, verbose=0), wrapped.model.evaluate(dataset, verbose=0)]


# ------------------------------------------------------------------------------------------------ fit and evaluate


@check
def not_compiled() -> list[list[str]]:
    wrapped = tnt.Model(plain())
    return [raised(wrapped.fit, dataset), raised(wrapped.evaluate, dataset)]


@check
def not_available() -> dict[str, list[str]]:
    text = np.array([b"text"] * 10, object), (np.array([10]), np.array([20]))
    return {
        "reduction='none'": raised(compiled(loss=keras.losses.MeanSquaredError(reduction="none")).fit, dataset),
        "output is text": raised(gather.in_order, text),
        "rows for 20 samples": raised(tnt.Model(keras.Sequential([keras.Input((4,)), Mean()])).predict, x, verbose=0),
        "micro-batch": raised(compiled().fit, dataset, tnt_micro_batch_size=4),
        "micro-batch size is 0": raised(compiled().fit, dataset, tnt_micro_batch_size=0),
        "training data: the dataset is empty": raised(compiled().fit, dataset.take(0)),
        "not batched": raised(compiled().fit, tf.data.Dataset.range(9).map(lambda i: (i, i))),
        "a sample": raised(compiled().fit, dataset.unbatch()),
        "a sample, one label": raised(compiled().fit, dataset.unbatch().map(lambda a, b: (a, b[0]))),
        "OptionalSpec": raised(compiled().fit, dataset.map(lambda a, b: (a, tf.experimental.Optional.from_value(b)))),
    }


class Largest(keras.metrics.Metric):
    """Does not keep sums."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

    def result(self) -> Any:
        return 1.0 * self.value  # the variable itself is read when Keras has validated


class Mean(layers.Layer):
    """One row for a batch."""

    def call(self, inputs: Any) -> Any:
        return tf.reduce_mean(inputs, 0, keepdims=True)


class Far(keras.metrics.Metric):
    """A user's own: the part of the numbers that are off by more than 1."""

    def __init__(self) -> None:
        super().__init__(name="far")
        self.far = self.add_weight(name="far", initializer="zeros")
        self.all = self.add_weight(name="all", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        off = tf.cast(tf.abs(y_true - y_pred) > 1, tf.float32)
        self.far.assign_add(tf.reduce_sum(off))
        self.all.assign_add(tf.cast(tf.size(off), tf.float32))

    def result(self) -> Any:
        return self.far / self.all


class Smallest(Largest):
    """Does not begin at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.reset_state()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.minimum(self.value, tf.reduce_min(y_pred)))

    def reset_state(self) -> None:
        self.value.assign(np.inf)


class Median(keras.metrics.Metric):
    """Keeps all numbers, in a variable that Keras does not know."""

    def __init__(self) -> None:
        super().__init__(name="median")
        self.numbers = tf.Variable(tf.zeros([0]), shape=[None], trainable=False)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.numbers.assign(tf.concat([self.numbers, tf.reshape(y_pred, [-1])], 0))

    def result(self) -> Any:
        numbers = tf.concat([self.numbers, [0.0]], 0)
        return tf.sort(numbers)[tf.size(numbers) // 2]

    def reset_state(self) -> None:
        self.numbers.assign(tf.zeros([0]))


class MedianOfArrays(keras.metrics.Metric):
    """Keeps them in a list, which takes ``run_eagerly``."""

    def __init__(self) -> None:
        super().__init__(name="median")
        self.arrays: list[Any] = []

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.arrays.append(np.asarray(y_pred).ravel())

    def result(self) -> Any:
        return float(np.median(np.concatenate(self.arrays))) if self.arrays else 0.0

    def reset_state(self) -> None:
        self.arrays = []


@check
def metrics_of_ones_own() -> dict[str, Any]:
    """The history, and the numbers of all ranks and of this one alone; on rank 0 plain Keras' history, too."""
    found: dict[str, Any] = {"plain": {}}
    for metric in (Far, Largest, Smallest, Median, MedianOfArrays):
        eager = {"run_eagerly": True} if metric is MedianOfArrays else {}
        how = {"validation_data": (x[:7], y[:7]), "validation_batch_size": 4, "verbose": 0}
        keras.utils.set_random_seed(5)
        wrapped = compiled(metrics=[metric()], **eager)
        history = wrapped.fit(dataset, **how).history
        numbers = [wrapped.evaluate(x, y, verbose=0), wrapped.model.evaluate(x, y, verbose=0)]
        found[metric.__name__] = [history, *numbers]
        keras.utils.set_random_seed(5)
        alone = compiled(metrics=[metric()], options={"parallel_strategy": tnt.ParallelStrategy.NONE}, **eager)
        if RANK == 0:
            found["plain"][metric.__name__] = alone.fit(dataset, **how).history
    return found


@check
def a_metric_that_was_refused_stays_refused() -> list[list[str]]:
    wrapped = compiled(metrics=[Largest()], options={"reproducible": 4})
    return [raised(wrapped.fit, dataset), raised(wrapped.fit, dataset), raised(wrapped.evaluate, dataset)]


@check
def callbacks_that_compute() -> list[Any]:
    """In the middle of a fit: the model inside, by itself, and the whole, together."""
    wrapped = compiled(metrics=["mae"])
    seen: list[list[Any]] = []

    class Computing(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            alone = self.model.evaluate(x, y, verbose=0) if epoch == RANK else None
            together = wrapped.evaluate(x, y, verbose=0)
            plain = self.model.predict(x[:3], verbose=0)
            seen.append([alone, together, float(np.abs(plain - wrapped.predict(x[:3], verbose=0)).max())])

    history = wrapped.fit(dataset, epochs=2, verbose=0, validation_data=(x, y), callbacks=[Computing()]).history
    return [seen, history["val_loss"], history["val_mae"]]


@check
def predictions_for_the_master() -> list[bool]:
    wrapped = compiled()
    given = wrapped.predict(x, verbose=0, tnt_output_on_all_devices=False)
    alone = wrapped.predict(x, verbose=0, tnt_distribute_dataset=False) if RANK == 1 else wrapped.model.predict(x, verbose=0)
    return [given is None, len(alone) == len(x)]


@check
def what_callbacks_of_predict_see() -> list[Any]:
    shapes: list[Any] = []

    class Shapes(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            shapes.append(list(logs["outputs"].shape))

    compiled().predict(x, batch_size=15, verbose=0, callbacks=[Shapes()])
    return shapes


@check
def other_calls() -> list[list[str]]:
    """One rank's dataset is a batch longer, or it is to be seen more often: an error on all, no hang."""
    longer = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(10).take(4 + RANK)
    return [raised(compiled().fit, longer, verbose=0), raised(compiled().fit, dataset, epochs=1 + RANK)]


@check
def training_begins_with_rank_0s_state() -> list[Any]:
    """Weights and optimizer differ before; nothing is learned."""
    wrapped = compiled(optimizer=keras.optimizers.Adam(0.0))
    wrapped.set_weights([np.full_like(w, RANK + 1) for w in wrapped.get_weights()])
    wrapped.optimizer.build(wrapped.trainable_variables)
    wrapped.optimizer.iterations.assign(10 * RANK + 5)
    wrapped.fit(dataset, verbose=0)
    return [sorted(set(flat(wrapped))), int(wrapped.optimizer.iterations.numpy())]


@check
def stats() -> dict[str, float]:
    wrapped = compiled()
    assert set(wrapped.stats().values()) == {0.0}
    wrapped.fit(dataset, epochs=2, verbose=0)
    return wrapped.stats()


@check
def history() -> dict[str, list[float]]:
    return compiled(metrics=["mae"]).fit(dataset, epochs=2, verbose=0, validation_data=(x, y)).history


@check
def predictions() -> list[bool]:
    """All of them, in order, on every rank, also of a dataset."""
    wrapped = compiled()
    wrapped.fit(dataset, verbose=0)
    expected = np.asarray(wrapped.model(x))
    return [np.allclose(wrapped.predict(data, verbose=0), expected, atol=1e-6) for data in (x, dataset.map(lambda a, b: a))]


@check
def callbacks() -> list[Any]:
    """Those that write files run on the master alone, with any way to give callbacks."""
    begun: list[int] = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
    mine = Path(folder, f"callbacks{RANK}")
    mine.mkdir()
    writers = [
        keras.callbacks.ModelCheckpoint(mine / "checkpoint.keras"),
        keras.callbacks.CSVLogger(mine / "log.csv"),
    ]
    wrapped = compiled()
    wrapped.fit(dataset, epochs=2, verbose=0, callbacks=[count, *writers])
    wrapped.fit(dataset, verbose=0, callbacks=count)
    wrapped.fit(dataset, verbose=0, callbacks=keras.callbacks.CallbackList([count], model=wrapped.model))
    return [begun, sorted(file.name for file in mine.iterdir())]


@check
def tensors_of_tensorflow() -> list[Any]:
    return [tnt.all_reduce(tf.constant([1.0, 2.0])).numpy().tolist(), tnt.broadcast(tf.Variable([3 + RANK])).tolist()]


@check
def printed() -> str:
    """What this rank prints of its own accord."""
    wrapped = compiled()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        wrapped.summary()
        wrapped.fit(dataset, verbose=2)
        wrapped.evaluate(dataset, verbose=2)
        wrapped.predict(x, verbose=2)
    return out.getvalue()


run(sys.argv[1])
