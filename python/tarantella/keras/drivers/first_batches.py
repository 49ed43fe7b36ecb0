"""The first batch of each iteration over a dataset goes to the model's trials before Keras gets it."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter.first_elements import WatchedDataset
from tarantella.keras.data import rows, split
from tarantella.keras.drivers.distributed_model import DistributedModel
from tarantella.keras.elastic.elastic_fit import ElasticFit


class FirstBatches(adapter.Callback):
    """Looks at the first batch of each iteration. It is to be the first in Keras' list of callbacks."""

    def __init__(self, model: DistributedModel, elastic: ElasticFit | None = None) -> None:
        super().__init__()
        self._distributed, self._elastic = model, elastic
        self._datasets: dict[str, WatchedDataset] = {}  # by the step that gets its batches

    def dataset(self, parts: tf.data.Dataset, steps: Sequence[str], is_divided: bool) -> tf.data.Dataset:
        """The same dataset of this rank's parts of batches, as `split.distribute` gives them, for Keras to iterate over.

        Args:
            steps: the steps of the model that are tried; the first is the one that gets these batches: ``"train_step"``.
            is_divided: whether ranks have parts of the same batch.
        """

        def try_out(element: Any) -> None:
            shards = split.unpack(element)
            if shards[0][1].is_stated:
                self._distributed.look_at_whole(shards[0][0], steps[:1])
                return
            batch, total = _joined(shards)
            self._distributed.look_at(batch, split.batch_spec(parts), steps, is_divided, total)

        elastic = self._elastic
        survive = try_out if elastic is None else lambda element: elastic.tried(lambda: try_out(element))
        given_to = None if self._distributed.trials is None else survive
        watched = WatchedDataset(parts, adapter.steps_per_execution(self._distributed.keras_model), given_to)
        self._datasets[steps[0]] = watched
        return watched

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._look("train_step")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._look("test_step")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._look("predict_step")

    def _look(self, step: str) -> None:
        if step in self._datasets:
            self._datasets[step].look()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._go_on("train_step")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._go_on("test_step")

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._go_on("predict_step")

    def _go_on(self, step: str) -> None:
        if step in self._datasets:
            self._datasets[step].go_on()


def _joined(shards: Sequence[tuple[Any, split.Share]]) -> tuple[Any, int]:
    """This rank's samples of a batch, and how many all ranks have; its own number if each rank has batches of its own."""
    counted = [batch for batch, share in shards if int(share.samples)] or [shards[0][0]]
    share = shards[0][1]
    total = int(share.samples if share.total is None else share.total)
    sizes = {int(rows.size_of(tensor)) for tensor in tf.nest.flatten(counted[0])}
    if len(counted) == 1 or len(sizes) > 1:
        return counted[0], total

    def together(*tensors: Any) -> Any:
        return tf.sparse.concat(0, list(tensors)) if isinstance(tensors[0], tf.SparseTensor) else tf.concat(tensors, 0)

    return tf.nest.map_structure(together, *counted), total
