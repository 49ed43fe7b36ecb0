"""Models whose layers compute with a length of the whole batch, on all ranks and in plain Keras."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras.adapter import LEGACY

SIZE = tnt.get_size()
layers = keras.layers
messages = log_messages()
random = np.random.default_rng(0)
WORDS = [f"w{i}" for i in range(20)]
LENGTHS = random.integers(1, 12, 29)  # the last batch of 7 has one sample, for one rank
ROWS = [random.integers(1, 20, n) for n in LENGTHS]
Y = np.array([row.mean() / 20 for row in ROWS], np.float32)[:, None]
FRAMES = random.normal(size=(29, 9, 4)).astype(np.float32)


def texts(batch: int = 7) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(([" ".join(WORDS[i] for i in row) for row in ROWS], Y)).batch(batch)


def rows(batch: int = 7) -> tf.data.Dataset:
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(ROWS).astype(np.int32), LENGTHS)
    return tf.data.Dataset.from_tensor_slices((ragged, Y)).batch(batch)


def frames(batch: int = 7) -> tf.data.Dataset:
    kinds = (tf.TensorSpec((None, 4)), tf.TensorSpec((1,)))
    return tf.data.Dataset.from_generator(lambda: zip(FRAMES, Y, strict=True), output_signature=kinds).padded_batch(batch)


class Dense(layers.Layer):
    """Makes rows dense in some way."""

    def __init__(self, how: Callable[[Any], Any]) -> None:
        super().__init__()
        self.how = how

    def call(self, inputs: Any) -> Any:
        return self.how(inputs) if isinstance(inputs, tf.RaggedTensor) else inputs  # Keras builds models with dense tensors

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((*inputs.shape[:1], None), "int32")


def by_function(ragged: Any) -> Any:
    return tf.function(lambda inner: inner.to_tensor())(ragged)


def through_sparse(ragged: Any) -> Any:
    return tf.sparse.to_dense(ragged.to_sparse())


def by_bounding_shape(ragged: Any) -> Any:
    return ragged.to_tensor(shape=tf.stack([tf.shape(ragged.row_lengths())[0], tf.cast(ragged.bounding_shape(1), tf.int32)]))


def a_mask(ragged: Any) -> Any:
    return tf.cast(tf.sequence_mask(ragged.row_lengths()), tf.int32)


def head(inputs: Any, hidden: Any) -> Any:
    """Pooling and a recurrent layer, both without a mask: they compute with the padding."""
    hidden = layers.Embedding(22, 3)(hidden)
    pooled = layers.GlobalAveragePooling1D()(hidden)
    last = layers.SimpleRNN(3)(hidden)
    return keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([pooled, last])))


def of_texts() -> Any:
    inputs = keras.Input((), dtype="string")
    return head(inputs, layers.TextVectorization(vocabulary=WORDS)(inputs))


def of_rows(how: Callable[[Any], Any] = lambda ragged: ragged.to_tensor()) -> Any:
    inputs = keras.Input((None,), dtype="int32", ragged=True)
    return head(inputs, Dense(how)(inputs) if not LEGACY else layers.Lambda(how)(inputs))


def of_frames() -> Any:
    inputs = keras.Input((None, 4))
    hidden = layers.TimeDistributed(layers.Dense(3, activation="tanh"))(inputs)
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(hidden)))


def results(model: Any, data: Callable[..., Any], all_methods: bool) -> list[Any]:
    """Losses and weights that a user gets of the model, or all that its methods give."""
    batches = data()
    history = model.fit(batches, epochs=2, verbose=0, validation_data=data(5)).history
    trained = [history["loss"], history["val_loss"], *([np.abs(w).sum()] for w in model.get_weights() if w.dtype == np.float32)]
    if not all_methods:
        return trained
    x, y = next(iter(batches))
    return [
        *trained,
        float(model.evaluate(data(8), verbose=0)),
        model.predict(data(8).map(lambda x, y: x), verbose=0).ravel().tolist(),
        float(model.train_on_batch(x, y)),
        float(model.test_on_batch(x, y)),
        model.predict_on_batch(x).ravel().tolist(),
    ]


def difference(
    of_model: Callable[[], Any], data: Callable[..., Any], options: Any = None, all_methods: bool = False, **how: Any
) -> float:
    """The largest one between the results of all ranks and of plain Keras."""
    found = []
    for wrapped in (False, True):
        keras.utils.set_random_seed(3)
        model = of_model()
        model = tnt.Model(model, **(options or {})) if wrapped else model
        model.compile(keras.optimizers.SGD(0.3), "mse", **how)
        found.append(results(model, data, all_methods))
    flat = [np.concatenate([np.ravel(part) for part in one]) for one in found]
    return float(np.abs(flat[0] - flat[1]).max())


@check
def text() -> float:
    return difference(of_texts, texts, all_methods=True)


@check
def ragged() -> float:
    return difference(of_rows, rows, all_methods=True)


@check
def what_was_logged() -> list[str]:
    return [message for message in messages if "ranks agree" in message]


if not LEGACY:

    @check
    def in_eager_mode() -> float:
        return difference(of_rows, rows, run_eagerly=True)

    @check
    def with_several_steps_at_once() -> float:
        return difference(lambda: of_rows(lambda r: r.to_tensor(default_value=7)), rows, steps_per_execution=3)

    @check
    def in_other_ways() -> dict[str, float]:
        return {
            how.__name__: difference(lambda how=how: of_rows(how), rows)
            for how in (by_function, through_sparse, by_bounding_shape, a_mask)
        }

    @check
    def given_lengths_are_kept() -> list[int]:
        seen: list[Any] = []

        def how(ragged: Any) -> Any:
            seen.append(ragged.to_tensor(shape=[None, 4]).shape[1])
            return ragged.to_tensor(shape=(None, 13))

        return [difference(lambda: of_rows(how), rows) < 1e-5, *map(int, set(seen))]

    @check
    def time_distributed() -> list[Any]:
        messages.clear()
        return [difference(of_frames, frames, all_methods=True), list(messages)]

    @check
    def time_distributed_over_too_few_steps() -> list[str]:
        model = tnt.Model(of_frames())
        model.compile("sgd", "mse")
        return raised(model.fit, frames(20), verbose=0)

    @check
    def in_shards() -> list[float]:
        if SIZE != 2:
            return []
        options = {"reproducible": 4}
        return [difference(of_rows, rows, options), difference(of_frames, frames, options)]

    @check
    def in_a_pipeline() -> list[str]:
        def fit() -> None:
            model = tnt.Model(of_texts(), parallel_strategy=tnt.ParallelStrategy.PIPELINING, pipeline_stages=SIZE)
            model.compile("sgd", "mse")
            model.fit(texts(), verbose=0)

        return raised(fit)

    @check
    def parts_of_a_whole_batch() -> list[float]:
        """As a trial computes it, eagerly and in one function for the whole and its parts."""
        from tarantella.keras.lengths.agreement import WholeBatch

        model = of_rows()
        (x, _), *_ = rows(12)
        found = []
        for call in (model, tf.function(model, reduce_retracing=True)):
            lengths, computed = WholeBatch(), []
            for batch in (x, x[:6], x[6:]):
                with lengths.run():
                    computed.append(np.asarray(call(batch)))
            found.append(float(np.abs(computed[0] - np.concatenate(computed[1:])).max()))
            found.append(float(np.abs(computed[0] - np.concatenate([model(x[:6]), model(x[6:])])).max()))
        return found


run(*sys.argv[1:])
