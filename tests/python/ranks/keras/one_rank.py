"""On one rank `tnt.Model` hands everything to Keras: the traced step is the plain model's, node for node."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


traced: list[Any] = []  # what Keras has made tf.functions of
make_function = tf.function


def remember(*args: Any, **kwargs: Any) -> Any:
    traced.append(make_function(*args, **kwargs))
    return traced[-1]


tf.function = remember


def trained(wrap: Any) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = wrap(keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dropout(0.2), layers.Dense(1)]))
    model.compile("adam", "mse", metrics=["mae"])
    traced.clear()
    model.fit(dataset, epochs=2, verbose=0, validation_data=dataset)
    return model


def nodes() -> dict[str, int]:
    """How many operations of each kind a training step has, of the model that was trained last."""
    step = next(f for f in traced if f.__name__ == "multi_step_on_iterator")
    definition = step.get_concrete_function(iter(dataset)).graph.as_graph_def()
    functions = [function.node_def for function in definition.library.function]
    return dict(collections.Counter(node.op for part in [definition.node, *functions] for node in part))


def weights(model: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


plain = trained(lambda model: model)
nodes_of_plain = nodes()
wrapped = trained(tnt.Model)
found = {
    "nodes": [nodes_of_plain, nodes()],
    "weights": [weights(plain), weights(wrapped)],
    "evaluate": [plain.evaluate(x, y, verbose=0), wrapped.evaluate(x, y, verbose=0, tnt_distribute_dataset=False)],
    "stats": wrapped.stats(),
    "hooks": wrapped._tnt.hooks is not None,
    # what several ranks cannot do yet, one can
    "validation_split": wrapped.fit(x, y, validation_split=0.25, verbose=0, tnt_distribute_dataset=True).history,
    "train_on_batch": float(wrapped.train_on_batch(x, y)[0]),
}
Path(sys.argv[1], "found.json").write_text(json.dumps(found))
