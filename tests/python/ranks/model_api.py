"""What `tnt.Model` is beside a trainer: a Keras model, with clear words about what it cannot do."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


def plain(**last: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1, name="second", **last)])


def compiled(model: Any = None, optimizer: Any = "sgd", loss: Any = "mse", **how: Any) -> Any:
    wrapped = tnt.Model(plain() if model is None else model)
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
    strategies = tnt.ParallelStrategy
    return [
        raised(tnt.Model, "a model"),
        raised(tnt.Model, layers.Dense(3)),
        raised(tnt.Model, None),
        raised(tnt.Model, plain(), parallel_strategy="data"),
        raised(tnt.Model, plain(), parallel_strategy=strategies.PIPELINING),
        raised(tnt.Model, plain(), parallel_strategy=strategies.ALL),
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
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    ids = keras.Sequential([keras.Input((4,)), layers.Embedding(9, 2, mask_zero=True), layers.Dense(1)])
    sparse = tf.data.Dataset.from_tensors(tf.sparse.from_dense(x)).map(lambda t: (t, y))
    return {
        "train_on_batch": raised(compiled().train_on_batch, x, y),
        "validation_split": raised(compiled().fit, x, y, validation_split=0.2),
        "BackupAndRestore": raised(compiled().fit, dataset, callbacks=[backup]),
        "reduction='sum'": raised(compiled(loss=keras.losses.MeanSquaredError(reduction="sum")).fit, dataset),
        "mask": raised(compiled(ids).fit, np.ones((20, 4)), np.ones((20, 4, 1)), batch_size=10, verbose=0),
        "not batched": raised(compiled().fit, tf.data.Dataset.range(9).map(lambda i: (i, i))),
        "SparseTensorSpec": raised(compiled().fit, sparse),
    }


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
