"""How legacy Keras reads data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.callbacks import Callback


class _Source:
    """Keras' view of data: its batches, how many an epoch has (None: not known), and the end of an epoch."""

    def __init__(self, data_adapter: Any, dataset: tf.data.Dataset, steps: int | None) -> None:
        self._data_adapter = data_adapter
        self.dataset = dataset
        self.steps = steps

    def on_epoch_end(self) -> None:
        self._data_adapter.on_epoch_end()


def source(
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool,
    class_weight: Any,
    *,
    model: Any = None,
    epochs: int = 1,
    **loading: Any,
) -> Any:
    """Keras' view of the arrays, tensors, generators or dataset that the user gave as data.

    Args:
        model: built from the first batch of a generator, whose shapes are not known.
        epochs: how many epochs of batches are needed; arrays are shuffled anew in each.
        loading: ``max_queue_size``, ``workers`` and ``use_multiprocessing``, as `fit` takes them.
    """
    from tf_keras.src.engine import data_adapter as engine

    made = engine.select_data_adapter(x, y)(
        x,
        y,
        sample_weights=sample_weight,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        shuffle=shuffle,
        model=model,
        distribution_strategy=tf.distribute.get_strategy(),
        **loading,
    )
    dataset = made.get_dataset()
    if class_weight:
        dataset = dataset.map(engine._make_class_weight_map_fn(class_weight))
    if isinstance(x, tf.data.Dataset):
        return _Source(made, dataset, steps)
    size = made.get_size() if steps is None else steps
    if made.should_recreate_iterator() and size is not None:  # a Sequence begins anew in each epoch
        dataset = dataset.take(size).apply(tf.data.experimental.assert_cardinality(size))
    return _Source(made, dataset, size)


def batch_of(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """One batch as Keras would train on it, as tensors."""
    from tf_keras.src.engine import data_adapter as engine

    return next(engine.single_batch_iterator(tf.distribute.get_strategy(), x, y, sample_weight, class_weight))


def pack_batch(part: Any) -> Any:
    """The ``x`` for `train_on_batch` and the like, from which the model's step gets its part of a batch by `unpack_batch`.

    Keras wants tensors that agree in their first dimension, so each gets one more.
    """
    return tf.nest.map_structure(lambda tensor: tf.expand_dims(tensor, 0), part)


def unpack_batch(element: Any) -> Any:
    """The part of a batch, from the element that the step gets."""
    return tf.nest.map_structure(lambda tensor: tensor[0], element[0])


def batch_for_step(batch: Any) -> Any:
    """One batch as Keras gives it to the model's training or test step: here it is as the user gave it."""
    return batch


def logs_of_outputs(outputs: Any) -> dict[str, Any]:
    """The logs that a callback sees after a batch of `predict`."""
    return {"outputs": outputs}


def validation_split(x: Any, y: Any, sample_weight: Any, part: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arrays to train on, and their last part to validate with, each as x, y and sample_weight."""
    from tf_keras.src.engine import data_adapter as engine

    training, validation = engine.train_validation_split((x, y, sample_weight), validation_split=part)
    return tuple(training), tuple(validation)


def batches(source: _Source, at_most: int | None = None) -> tf.data.Dataset:
    """The dataset of the batches that Keras would train on. at_most: not used; its threads take more of a generator anyway."""
    return source.dataset


def steps_per_epoch(source: _Source, given: int | None) -> int | None:
    """How many batches an epoch has: the batches of arrays go on from one epoch to the next."""
    return source.steps


@contextmanager
def epoch_of(source: _Source, evaluated: bool) -> Iterator[None]:
    """The batches of a source are evaluated, or predicted from, in this context: it is told what Keras tells it then."""
    yield
    source.on_epoch_end()


class EpochNotifier(Callback):
    """Tells a source of batches of the end of epochs: a `Sequence` may shuffle there."""

    def __init__(self, source: _Source) -> None:
        super().__init__()
        self._source = source

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._source.on_epoch_end()
