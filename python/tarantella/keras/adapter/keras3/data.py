"""How Keras 3 reads data."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.callbacks import Callback
from tarantella.keras.adapter.front_end import keras


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
        model, epochs: not used; legacy Keras needs them.

    Raises:
        TypeError: something else was given.
    """
    if loading:
        raise TypeError(f"unexpected argument {', '.join(loading)}: Keras 3 takes such from a PyDataset")
    from keras.src.trainers import data_adapters

    return data_adapters.get_data_adapter(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps,
        shuffle=shuffle and not isinstance(x, tf.data.Dataset),  # Keras would only warn
        class_weight=class_weight,
    )


def batch_of(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """One batch as Keras would train on it, as tensors."""
    from keras.src.trainers.data_adapters import data_adapter_utils

    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("sample_weight and class_weight cannot be given together")
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    packed = data_adapter_utils.pack_x_y_sample_weight(x, y, sample_weight)
    return keras.tree.map_structure(lambda leaf: leaf if tf.is_tensor(leaf) else tf.convert_to_tensor(leaf), packed)


def pack_batch(part: Any) -> Any:
    """The ``x`` for `train_on_batch` and the like, from which the model's step gets its part of a batch by `unpack_batch`."""
    return part


def unpack_batch(element: Any) -> Any:
    """The part of a batch, from the element that the step gets."""
    return element[0]


def batch_for_step(batch: Any) -> Any:
    """One batch as Keras gives it to the model's training or test step: always with labels and weights, which may be None."""
    return keras.utils.unpack_x_y_sample_weight(batch)


def logs_of_outputs(outputs: Any) -> dict[str, Any]:
    """The logs that a callback sees after a batch of `predict`."""
    return outputs if isinstance(outputs, dict) else {"outputs": outputs}


def validation_split(x: Any, y: Any, sample_weight: Any, part: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arrays to train on, and their last part to validate with, each as x, y and sample_weight."""
    from keras.src.trainers.data_adapters import array_slicing

    training, validation = array_slicing.train_validation_split((x, y, sample_weight), validation_split=part)
    return tuple(training), tuple(validation)


def batches(source: Any, at_most: int | None = None) -> tf.data.Dataset:
    """The dataset of the batches that Keras would train on.

    at_most: an iterator takes no more batches than this from a generator: the next one would miss what it had prefetched.
    """
    generator = getattr(source, "generator", None)
    if at_most is not None and generator is not None:
        source.generator = lambda: itertools.islice(generator(), at_most)
    dataset = source.get_tf_dataset()
    # Keras counts the batches of arrays; their dataset does not know the number. Without it, the last step of an epoch would
    # find no data when the optimizer has counted it already
    if source.num_batches is not None and dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(source.num_batches))
    return dataset


def steps_per_epoch(source: Any, given: int | None) -> int | None:
    """How many batches an epoch has; None: as many as there are."""
    return given


@contextmanager
def epoch_of(source: Any, evaluated: bool) -> Iterator[None]:
    """The batches of a source are evaluated, or predicted from, in this context: it is told what Keras tells it then."""
    if evaluated:
        source.on_epoch_end()  # as Keras does before
    if hasattr(source, "on_epoch_begin"):  # not before Keras 3.4
        source.on_epoch_begin()
    yield
    source.on_epoch_end()


class EpochNotifier(Callback):
    """Tells a source of batches of the begin and end of epochs, as Keras would: a `PyDataset` may shuffle there."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def on_train_begin(self, logs: Any = None) -> None:
        self._source.on_epoch_end()  # as Keras does before the first epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if hasattr(self._source, "on_epoch_begin"):  # not before Keras 3.4
            self._source.on_epoch_begin()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._source.on_epoch_end()
