"""The samples that are tried: some of a batch of the user's, and the two parts of them that two ranks would have.

What couples samples is often their length: a batch is padded to its longest sample. So the shortest samples are one part, and
the longest ones are all in the other. The length of a sample is the number of its words, of its rows, or of its numbers that
are not zero.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.keras.data import rows
from tarantella.keras.trial.comparison import NotComparable

SAMPLES = 8  # at most: more of them would take more time, and couple no more


class Parts(NamedTuple):
    """Some samples, and the two parts of them."""

    whole: Any
    parts: tuple[Any, ...]
    sizes: tuple[int, ...]
    """How many samples the parts have."""

    @property
    def samples(self) -> int:
        """How many samples are tried."""
        return sum(self.sizes)

    @property
    def weights(self) -> tuple[float, ...]:
        """The part that each is of the whole."""
        return tuple(size / self.samples for size in self.sizes)


def parts_of(batch: Any, shortest: int | None = None) -> Parts:
    """The parts that are tried of a batch of tensors, which may have different sizes.

    shortest: how many samples are in the part of the shortest ones; None: about a third.

    Raises:
        NotComparable: it has fewer than two samples, or tensors of other kinds.
    """
    tensors = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
    groups = samples_in(batch)
    if groups < 2:
        raise NotComparable("there are fewer than two samples")
    order = np.argsort(sum(_lengths(tensor, groups) for tensor in tensors), kind="stable")
    if groups > SAMPLES:  # the shortest, the longest, and some between them
        order = order[np.linspace(0, groups - 1, SAMPLES).round().astype(int)]
    first = shortest or max(1 if len(order) < 4 else 2, 3 * len(order) // 8)
    whole, *parts = (_rows_of(batch, chosen, groups) for chosen in (order, order[:first], order[first:]))
    return Parts(whole, (parts[0], parts[1]), (first, len(order) - first))


def other_parts(parts: Parts) -> Parts:
    """Other parts of the same samples: short and long ones are in both."""
    samples, first = parts.samples, list(range(1, parts.samples, 3))
    chosen = [np.array(first), np.array([i for i in range(samples) if i not in first])]
    order = np.concatenate(chosen)
    whole, *others = (_rows_of(parts.whole, rows_chosen, samples) for rows_chosen in (order, *chosen))
    return Parts(whole, tuple(others), tuple(map(len, chosen)))


def samples_in(batch: Any) -> int:
    """How many samples a batch has, of which a rank can be given each alone; tensors may have several rows of a sample."""
    tensors = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
    if not tensors or any(not isinstance(t, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)) for t in tensors):
        raise NotComparable("it takes other things than tensors")
    if any(tensor.shape.rank == 0 for tensor in tensors):
        raise NotComparable("it takes a number that is not one of a sample")
    return int(rows.number_of_groups(tensors, one_size=False))


def _rows_of(batch: Any, chosen: NDArray[np.int64], groups: int) -> Any:
    """The rows of these samples."""

    def tensor_rows(tensor: Any) -> Any:
        if tensor is None:
            return None
        begins = np.arange(0, int(rows.size_of(tensor)), groups)
        places = (begins[:, np.newaxis] + chosen).ravel()
        if not isinstance(tensor, tf.SparseTensor):
            return tf.gather(tensor, places)
        size = [1, *tensor.dense_shape.numpy()[1:]]
        return tf.sparse.concat(0, [tf.sparse.slice(tensor, [place, *[0] * (len(size) - 1)], size) for place in places])

    return tf.nest.map_structure(tensor_rows, batch)


def _lengths(tensor: Any, groups: int) -> NDArray[np.float64]:
    """The length of each sample, relative to the longest. Where samples have lengths of their own, zeros count little."""
    dominant = 1000.0
    if isinstance(tensor, tf.RaggedTensor):
        flat = tensor.merge_dims(1, -1) if tensor.shape.rank is not None and tensor.shape.rank > 2 else tensor
        row_lengths = flat.row_lengths().numpy()
    elif isinstance(tensor, tf.SparseTensor):
        row_lengths = np.bincount(tensor.indices.numpy()[:, 0], minlength=int(tensor.dense_shape[0]))
    elif tensor.dtype == tf.string:
        words = tf.strings.length(tf.strings.regex_replace(tensor, r"\S", "")) * 1000 + tf.strings.length(tensor)
        row_lengths = tf.reduce_sum(words, list(range(1, tensor.shape.rank))).numpy()
    else:
        dominant = 1.0
        row_lengths = np.count_nonzero(tensor.numpy().reshape(tensor.shape[0], -1), 1) if tensor.shape[0] else np.zeros(0)
    sample_lengths: NDArray[np.float64] = np.asarray(row_lengths, np.float64).reshape(-1, groups).sum(0)
    return dominant * sample_lengths / max(float(sample_lengths.max()), 1.0)


# ------------------------------------------------------------------------------------------- where a rank has few samples


def with_borrowed(batch: Any) -> Any:
    """This rank's part of a batch; where a rank has few samples, some of all ranks if they can be sent. Collective.

    Raises:
        NotComparable: on all ranks; a rank has fewer than two samples, and they cannot be sent.
    """
    try:
        own = samples_in(batch)
    except NotComparable:
        own = SAMPLES  # `parts_of` says why on this rank
    least = int(collectives.all_reduce(own, op="min"))
    if least >= SAMPLES:
        return batch
    given = tf.nest.flatten(batch)
    each = -(-SAMPLES // runtime.get_size())
    sent = [None if tensor is None else _as_array(tensor[:each]) for tensor in given] if _is_dense(given) else None
    shapes = None if sent is None else [None if array is None else [*array.shape[1:]] for array in sent]
    rank_shapes = all_gather_object(shapes)
    if sent is None or any(one != rank_shapes[0] for one in rank_shapes):
        if least < 2:
            raise NotComparable("a rank has fewer than two samples, and others cannot send it theirs")
        return batch
    together = []
    for same in zip(*all_gather_object(sent), strict=True):
        together.append(None if same[0] is None else tf.convert_to_tensor(np.concatenate(same)))
    return tf.nest.pack_sequence_as(batch, together)


def _is_dense(tensors: Sequence[Any]) -> bool:
    """Whether these are dense tensors with the same number of samples."""
    sizes = {t.shape[0] if isinstance(t, tf.Tensor) and t.shape.rank else None for t in tensors if t is not None}
    return len(sizes) == 1 and None not in sizes


def _as_array(tensor: tf.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.numpy()
    return array.astype(np.bytes_) if tensor.dtype == tf.string else array


_ANY_LENGTH, _ANY_LENGTH_OF_IMAGES = 4, 32


def made_up_batch(batch_spec: Any) -> Any:
    """Made-up samples of these specs, for a pipeline, which must be tried before there is data.

    They differ much from each other, so that coupling shows.

    Raises:
        NotComparable: they cannot be made up.
    """
    random = np.random.default_rng(2)
    given = batch_spec if isinstance(batch_spec, tuple) else (batch_spec,)
    made = tuple(
        tf.nest.map_structure(lambda spec, place=place: None if spec is None else _made_up(spec, place, random), specs)
        for place, specs in enumerate(given)
    )
    return made if isinstance(batch_spec, tuple) else made[0]


def _made_up(spec: Any, place: int, random: np.random.Generator) -> tf.Tensor:
    """place: 0 for the inputs, 1 for the labels, 2 for their weights."""
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0) or spec.dtype == tf.string:
        raise NotComparable(f"it takes a {type(spec).__name__.removesuffix('Spec')} of {spec.dtype.name}")
    any_length = _ANY_LENGTH if spec.shape.rank < 4 else _ANY_LENGTH_OF_IMAGES
    shape = [SAMPLES, *(any_length if n is None else n for n in spec.shape[1:])]
    scale = np.linspace(0.3, 2, SAMPLES).reshape(-1, *[1] * (len(shape) - 1))
    numbers = np.asarray(random.integers(0, 2, shape), np.float64)
    if spec.dtype.is_floating:
        numbers = random.normal(size=shape) * scale if place == 0 else 0.05 + 0.9 * random.random(shape)
    if place == 1:  # where zeros do not count, samples have other numbers of them
        numbers = numbers * (random.random(shape) > 0.2 * scale)
    return tf.convert_to_tensor(numbers.astype(spec.dtype.as_numpy_dtype))
