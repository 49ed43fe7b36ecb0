"""Mini-batches of graphs on several ranks and in plain Keras: nodes, a block matrix of their edges, and labels."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
PER_RANK = (3, 2)  # of the graphs in a batch: rank 0 has 3, the others 2
BATCHES = 3
messages = log_messages()

Graph = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The features and edges of its nodes, its label, and those of its nodes."""


def graphs(number: int) -> list[Graph]:
    random = np.random.default_rng(5)
    made = []
    for nodes in random.integers(3, 8, number):
        x = random.normal(size=(nodes, 4)).astype(np.float32)
        edges = (random.uniform(size=(nodes, nodes)) < 0.5).astype(np.float32)
        made.append((x, edges, np.array([np.tanh(x).sum()], np.float32), x.sum(1, keepdims=True)))
    return made


def of_rank(rank: int) -> int:
    return PER_RANK[min(rank, 1)]


IN_BATCH = sum(of_rank(rank) for rank in range(SIZE))
ALL = graphs(BATCHES * IN_BATCH)


def chosen(rank: int | None) -> list[list[Graph]]:
    """The graphs in each batch of a rank's own; None: of all ranks together."""
    batches = [list(itertools.islice(ALL, i * IN_BATCH, (i + 1) * IN_BATCH)) for i in range(BATCHES)]
    if rank is None:
        return batches
    begin = sum(of_rank(before) for before in range(rank))
    return [batch[begin : begin + of_rank(rank)] for batch in batches]


def joined(batch: list[Graph], of_nodes: bool) -> Any:
    """The graphs as one: features, a sparse block matrix, the graph of each node; labels of the graphs, or of nodes, too."""
    x, edges, labels, node_labels = zip(*batch, strict=True)
    begins = np.cumsum([0, *map(len, x)])
    places = np.concatenate([np.argwhere(e) + begin for e, begin in zip(edges, begins, strict=False)])
    matrix = tf.SparseTensor(places, np.ones(len(places), np.float32), [begins[-1], begins[-1]])
    inputs = np.concatenate(x), matrix, np.repeat(np.arange(len(x)), [len(one) for one in x])
    return inputs, (np.stack(labels), np.concatenate(node_labels)) if of_nodes else np.stack(labels)


def data(rank: int | None, of_nodes: bool = False) -> tf.data.Dataset:
    labels: Any = tf.TensorSpec([None, 1])
    inputs = tf.TensorSpec([None, 4]), tf.SparseTensorSpec([None, None]), tf.TensorSpec([None], tf.int64)

    def generate() -> Iterator[Any]:
        for batch in chosen(rank):
            yield joined(batch, of_nodes)

    spec = inputs, (labels, labels) if of_nodes else labels
    batches = tf.data.Dataset.from_generator(generate, output_signature=spec)
    return batches.apply(tf.data.experimental.assert_cardinality(BATCHES))  # or Keras counts one more for outputs' losses


class Network(keras.Model):
    """A convolution over edges, and the mean of each graph; the output of the nodes beside it if that is asked for."""

    def __init__(self, of_nodes: bool = False) -> None:
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)
        self.of_nodes = of_nodes

    def call(self, inputs: Any) -> Any:
        x, edges, graph = inputs if len(inputs) == 3 else (*inputs, tf.zeros([tf.shape(inputs[0])[0]], tf.int64))
        nodes = self.hidden((edges @ x if isinstance(edges, tf.Tensor) else tf.sparse.sparse_dense_matmul(edges, x)) + x)
        whole = self.last(tf.math.segment_mean(nodes, graph))
        return (whole, self.last(nodes)) if self.of_nodes else whole


class OwnStep(Network):
    """A mean over graphs, whose gradients a step of its own gives."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"squared": loss}


def labels_in(batch: Any) -> Any:
    return tf.shape(tf.nest.flatten(batch[1])[0])[0]


def sum_of_squares(y_true: Any, y_pred: Any) -> Any:
    return tf.reduce_sum(tf.square(y_true - y_pred))


def trained(own: bool, model: Callable[[], Any], loss: Any, of_nodes: bool = False, **compiled: Any) -> list[float]:
    """Losses, metrics and weights, of batches of this rank's own or of all ranks together in plain Keras."""
    keras.utils.set_random_seed(4)
    network = tnt.Model(model(), tnt.ParallelStrategy.DATA if own else tnt.ParallelStrategy.NONE)
    network.compile(keras.optimizers.SGD(0.01), loss, **compiled)
    batches, checked = data(RANK if own else None, of_nodes), data(None, of_nodes)
    if own:
        how: dict[str, Any] = {"tnt_distribute_dataset": False, "tnt_batch_size": labels_in}
        kept = checked.enumerate().filter(lambda i, _: i % SIZE == RANK).map(lambda _, batch: batch)
        validation = {"tnt_distribute_validation_dataset": False, "tnt_validation_batch_size": labels_in}
    else:
        how, kept, validation = {}, checked, {}
    history = network.fit(batches, epochs=2, verbose=0, validation_data=kept, **how, **validation).history
    tested = network.evaluate(kept, verbose=0, return_dict=True, **how)
    weights = np.concatenate([np.ravel(w) for w in network.get_weights()])
    predicted = network.predict(checked, verbose=0, **({"tnt_distribute_dataset": False} if own else {}))
    values = [*(v for key in sorted(history) for v in history[key]), *(tested[key] for key in sorted(tested)), *weights]
    return [float(v) for v in (*values, *np.concatenate([np.ravel(p) for p in tf.nest.flatten(predicted)]))]


def compared(*args: Any, **kwargs: Any) -> list[list[float]]:
    return [trained(own, *args, **kwargs) for own in (True, False)]


@check
def equal() -> dict[str, Any]:
    two = {"model": lambda: Network(True), "loss": ["mse", "mae"], "of_nodes": True, "loss_weights": [1.0, 0.3]}
    return {
        "compiled": compared(Network, "mse", metrics=["mae"]),
        "a sum": compared(Network, sum_of_squares),
        "labels of nodes, too": compared(**two),
        "own step": compared(OwnStep, "mse"),
    }


@check
def said() -> list[str]:
    return messages


def fitted(dataset: tf.data.Dataset, how: str = "fit", **options: Any) -> Any:
    network = tnt.Model(Network())
    network.compile("sgd", "mse")
    return getattr(network, how)(dataset, verbose=0, **options)


@check
def refused() -> dict[str, list[str]]:
    whole, mine = data(None), data(RANK)
    own = {"tnt_distribute_dataset": False}
    edges = tf.data.Dataset.from_generator(
        lambda: iter([((np.zeros((12, 4), np.float32), np.zeros((12, 12), np.float32)), np.zeros((4, 1), np.float32))]),
        output_signature=((tf.TensorSpec([None, 4]), tf.TensorSpec([None, None])), tf.TensorSpec([None, 1])),
    )
    (x, _, _), y = joined(ALL[:5], False)
    one = tf.sparse.from_dense(np.eye(9, dtype=np.float32))
    large = tf.data.Dataset.from_tensors(((np.zeros((9, 4), np.float32), one, np.zeros(9, np.int64)), np.zeros((9, 1))))
    single = tnt.Model(Network())
    single.compile("sgd", "mse")
    return {
        "shared": raised(fitted, whole),
        "evaluated": raised(fitted, whole, "evaluate"),
        "predicted": raised(fitted, whole, "predict"),
        "validation": raised(fitted, mine, validation_data=whole, **own, tnt_batch_size=labels_in),
        "not stated": raised(fitted, mine, **own),
        "another number": raised(fitted, mine, **own, tnt_batch_size=1000),
        "no number": raised(fitted, mine, **own, tnt_batch_size=0.5),
        "shared and stated": raised(fitted, whole, tnt_batch_size=4),
        "a dense matrix": raised(fitted, edges),
        "one graph": raised(fitted, large),
        "on a batch": raised(single.train_on_batch, x, y),
    }


@check
def numbers() -> list[float]:
    """The number of a batch's samples instead of a function."""
    return [float(v) for v in fitted(data(RANK), tnt_distribute_dataset=False, tnt_batch_size=of_rank(RANK)).history["loss"]]


@check
def not_refused() -> list[list[str]]:
    """Sparse samples may be as many as their numbers; a generator may give two views of each sample."""
    words = tf.sparse.from_dense(np.eye(6, dtype=np.float32))
    sparse = tf.data.Dataset.from_tensor_slices((words, np.zeros((6, 1), np.float32))).batch(6, drop_remainder=True)
    views = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((5, 2), np.float32), np.zeros((10, 2), np.float32))] * 2),
        output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 2])),
    )

    class Views(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_mean(tf.square(self(part) - 1.0)) for part in batch)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    found = []
    for make, batches in ((lambda: keras.Sequential([keras.layers.Dense(1)]), sparse), (Views, views)):
        model = tnt.Model(make())
        model.compile("sgd", "mse")
        found.append(raised(model.fit, batches, verbose=0))
    return found


run(sys.argv[1], *sys.argv[2:])
