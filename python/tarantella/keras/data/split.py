"""Each rank's part of each global batch.

A batch is divided into shards; shard s of n has the samples ``batch[s::n]``. There is one shard for each rank. Where bits must
not depend on the number of ranks, the number of shards is fixed, and each rank takes some consecutive ones. The split is the
last operation on the dataset, so every operation before it does the same as on one device. A shard without a sample gets the
first one of the batch, with weight zero: a model cannot run on no samples at all. Tensors of different sizes in one batch are
divided in the same proportion (`rows`), but for samples that are joined into one (`joined`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella import runtime
from tarantella.keras.adapter import datasets
from tarantella.keras.data import joined, rows

SAMPLES = "number of samples"
"""The name of that fingerprint."""
_WHOLE = "whole batch in shards: "
"""How the name of that fingerprint begins, which is always 0, of batches that are cut where they are unpacked."""
_ONE_SIZE = ", all tensors of one size"
STATED = "stated number of samples"
"""That of batches of a rank's own, whose number of samples the user states. It is always 0."""
_OF_BATCH = ("x", "y", "sample_weight")
_OF_FIRST = 16  # values that are looked at where a sample has no fixed number of them
_SLICEABLE = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


@dataclass(frozen=True)
class Division:
    """The number of shards of a batch, and those that are this rank's. Shards of a higher number are empty."""

    shards: int
    own: range

    @staticmethod
    def among(size: int, rank: int, shards: int | None = None) -> "Division":
        """One shard for each rank, or the given number, of which all ranks take equally many.

        If they cannot, as after the loss of ranks, as many of them do as the largest power of two, and the others take one
        that is empty. Sums over ranks begin with pairs of the first ranks then, of which one has shards, so that the sums of
        all these pairs and of the other ranks make a balanced tree (`left_terms` in ``kernels/cpu/register_sums.hpp``).
        """
        if shards is None:
            return Division(size, range(rank, rank + 1))
        power = size if shards % size == 0 else 1 << (size.bit_length() - 1)
        pairs = size - power
        place = rank // 2 if rank < 2 * pairs else rank - pairs
        each = shards // min(shards, power)
        begin = place * each
        is_idle = begin >= shards or (rank < 2 * pairs and rank % 2 == 1)
        return Division(shards, range(shards, shards + 1) if is_idle else range(begin, begin + each))


class Share(NamedTuple):
    """The figures of a shard that a training step needs beside the samples: scalars, int64.

    Where the tensors of a batch have different sizes, samples are those of the first one; the shard has the same part of all.
    """

    samples: tf.Tensor
    """The number of samples of this shard; 0 if the one there does not count."""
    total: tf.Tensor | None
    """The number of samples of the global batch; None if every rank has batches of its own."""
    fingerprints: dict[str, tf.Tensor]
    """What shows that ranks have the same global batch: its number of samples, and a hash of each of its tensors' first sample,
    by name. If every rank has batches of its own: that of the proportion of their tensors' sizes."""

    @property
    def is_stated(self) -> bool:
        """Whether the user states the number of samples: tensors have other numbers of rows."""
        return STATED in self.fingerprints

    @property
    def fingerprint(self) -> tf.Tensor:
        """All of it in one number."""
        return tf.add_n(list(self.fingerprints.values()))


def distribute(dataset: tf.data.Dataset, division: Division) -> tf.data.Dataset:
    """The dataset with this rank's shards of each batch: an element is a tuple of pairs of a shard's samples and its share.

    Raises:
        ValueError: the elements have no batch axis, or cannot be split.
    """
    return _map_batches(dataset, lambda batch, one_size: own_shards(batch, division, one_size), joined.IN_PARTS)


def undivided(dataset: tf.data.Dataset, stated: joined.Stated | None = None) -> tf.data.Dataset:
    """The dataset as it is, of a rank with batches of its own, with shares as `distribute` gives them.

    stated: how many samples this rank has in a batch; None: as many as its tensors have rows.
    """

    def with_share(batch: Any, one_size: bool) -> tuple[tuple[Any, tuple[tf.Tensor, dict[str, tf.Tensor]]]]:
        zero = tf.constant(0, tf.int64)
        if stated is not None:
            return ((batch, (joined.stated_samples(stated, batch), {STATED: zero})),)
        proportion = zero if one_size else _proportion_fingerprint(batch)
        return ((batch, (samples_in(batch), {"proportion": tf.identity(proportion)})),)

    return _map_batches(dataset, with_share, joined.AS_IT_IS if stated is None else None)


def whole(dataset: tf.data.Dataset, shards: int | None) -> tf.data.Dataset:
    """The dataset with whole batches, which `unpack` cuts: among the ranks that there are when a step is traced or run.

    An element is as `distribute` gives it. shards: into which each batch is cut; None: one for each rank.

    Raises:
        ValueError: as `distribute`.
    """
    mark = f"{_WHOLE}{shards or 0}{_ONE_SIZE if datasets.has_one_size(dataset) else ''}"

    def marked(batch: Any, one_size: bool) -> Any:
        fingerprints = fingerprints_of(batch)
        total = fingerprints[SAMPLES]
        return ((batch, (total, total, {mark: tf.constant(0, tf.int64), **fingerprints})),)

    return _map_batches(dataset, marked, joined.IN_PARTS)


def _map_batches(dataset: tf.data.Dataset, function: Callable[[Any, bool], Any], then: str | None) -> tf.data.Dataset:
    """Maps batches.

    Args:
        function: gets each batch, and whether all of its tensors are known to have one size.
        then: why a batch of joined samples fails, as for `joined.checks`; None: it does not.
    """
    check_batched(dataset.element_spec)
    one_size, tells_sizes = datasets.has_one_size(dataset), datasets.tells_sizes(dataset)
    is_batched = datasets.last_batch(dataset) is not None

    def mapped(*element: Any) -> Any:
        batch = _structure(dataset, element)
        checks = [] if one_size or then is None else joined.checks(named(batch), tells_sizes, then, is_batched)
        with tf.control_dependencies(checks):
            return function(batch, one_size)

    return map_in_order(dataset, mapped)


def _mark_of_whole(fingerprints: Mapping[str, Any]) -> str | None:
    """How a whole batch is to be cut: the number of shards, 0 for one on each rank, and `_ONE_SIZE`; None if it is cut."""
    return next((name.removeprefix(_WHOLE) for name in fingerprints if name.startswith(_WHOLE)), None)


def map_in_order(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Maps the elements one after another.

    No branch of the function depends on a tensor, so AutoGraph is kept from rewriting it. The rewriting took more than half a
    second of each rank's first fit.
    """
    unconverted = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(unconverted, num_parallel_calls=1, deterministic=True)


def batch_spec(dataset: tf.data.Dataset) -> Any:
    """The spec of this rank's batches without their shares, of a dataset that `distribute` or the like made."""
    spec, (*_, fingerprints) = dataset.element_spec[0]
    return spec if _mark_of_whole(fingerprints) is None else tf.nest.map_structure(_of_any_size, spec)


def _of_any_size(spec: Any) -> Any:
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, spec.name) if isinstance(spec, tf.TensorSpec) else spec


def unpack(element: Any) -> list[tuple[Any, Share]]:
    """Samples and share of each shard in an element of such a dataset."""
    whole_batch, (*_, fingerprints) = element[0]
    mark = _mark_of_whole(fingerprints)
    if mark is not None:
        shards = int(mark.removesuffix(_ONE_SIZE)) or None
        division = Division.among(runtime.get_size(), runtime.get_rank(), shards)
        known = {name: value for name, value in fingerprints.items() if not name.startswith(_WHOLE)}
        element = own_shards(whole_batch, division, mark.endswith(_ONE_SIZE), known)
    return as_given(element)


def as_given(element: Any) -> list[tuple[Any, Share]]:
    """The same, but a whole batch is not cut: it is one shard."""
    return [
        (batch, Share(samples, total[0] if total else None, fingerprints)) for batch, (samples, *total, fingerprints) in element
    ]


def may_be_empty(dataset: tf.data.Dataset) -> bool:
    """Whether this rank's shard of a batch may have no sample. It has some if every batch has a known, large enough size."""
    return any(spec.shape.rank is None or spec.shape[0] is None for spec in tf.nest.flatten(batch_spec(dataset)))


TO_BATCH = (
    "call dataset.batch(B) with the batch of all ranks together, or pass tnt_micro_batch_size=m, the samples of each rank in a "
    "step"
)


def check_batched(element_spec: Any) -> None:
    """Raises ValueError if the elements cannot be split by sample."""
    specs = tf.nest.flatten(element_spec)
    if not specs:
        raise ValueError("the dataset has no elements to split")
    for spec in specs:
        if not isinstance(spec, _SLICEABLE):
            raise ValueError(
                f"cannot split {type(spec).__name__} elements by sample: use dense, ragged or sparse tensors, "
                "or tnt_distribute_dataset=False"
            )
    scalars = [name for name, spec in _named(element_spec) if spec.shape.rank == 0]
    if len(scalars) == len(specs):
        raise ValueError(f"the dataset is not batched: {TO_BATCH}")
    if scalars:
        raise ValueError(
            f"an element of the dataset has a scalar, {', '.join(scalars)}, beside tensors with axes. If the dataset is not "
            f"batched: {TO_BATCH}. If it is: repeat the scalar for each sample, as by tf.fill([n], value), or give it to the "
            "model in another way, such as a variable"
        )


def check_axis_of_samples(element_spec: Any, inputs: Sequence[Any] | None) -> None:
    """Raises ValueError if an element is a sample of a model with these inputs, which have an axis of samples before it."""
    x = element_spec[0] if isinstance(element_spec, tuple) else element_spec
    specs = tf.nest.flatten(x)
    shapes = [tuple(tensor.shape) for tensor in tf.nest.flatten(inputs)] if inputs else []
    if len(specs) != len(shapes) or not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        return
    if all(_is_sample(spec.shape, shape) for spec, shape in zip(specs, shapes, strict=True)):
        shown = ", ".join(f"{tuple(spec.shape)} for an input of {shape}" for spec, shape in zip(specs, shapes, strict=True))
        raise ValueError(f"the dataset is not batched, its elements have shapes as {shown}: {TO_BATCH}")


def _is_sample(shape: tf.TensorShape, input_shape: tuple[int | None, ...]) -> bool:
    """Keras adds a last axis of one element where it is missing: a vector may be a batch for an input of (None, 1)."""
    if not shape.rank or shape != input_shape[1:]:
        return False
    return input_shape[-1] != 1 or shape[1:] != input_shape[1:-1]


def _named(structure: Any, name: str = "element") -> list[tuple[str, Any]]:
    """The specs in an element, with what an expression for each would be."""
    if isinstance(structure, Mapping):
        return [found for key, part in structure.items() for found in _named(part, f"{name}[{key!r}]")]
    if isinstance(structure, (tuple, list)):
        return [found for at, part in enumerate(structure) for found in _named(part, f"{name}[{at}]")]
    return [(name, spec) for spec in tf.nest.flatten(structure)]


def own_shards(
    batch: Any, division: Division, one_size: bool = False, fingerprints: dict[str, tf.Tensor] | None = None
) -> tuple[tuple[Any, tuple[tf.Tensor, ...]], ...]:
    """This rank's shards of a batch of tensors with their shares, as `distribute` gives them; in a graph or eagerly.

    Args:
        one_size: whether all tensors of the batch are known to have equally many samples.
        fingerprints: those of the batch; None: they are computed.
    """
    tensors = tf.nest.flatten(batch)
    fingerprints = fingerprints_of(batch) if fingerprints is None else fingerprints
    total, groups = fingerprints[SAMPLES], rows.number_of_groups(tensors, one_size)
    in_each = 1 if one_size else total // groups
    own = [rows.shard_groups(shard, division.shards, groups, one_size) for shard in division.own]
    return tuple((tf.nest.map_structure(one.rows_of, batch), (one.count * in_each, total, fingerprints)) for one in own)


def fingerprints_of(batch: Any) -> dict[str, tf.Tensor]:
    """Those of a share of this batch."""
    heads = {name: head for name, tensor in named(batch).items() if (head := _head(tensor)) is not None}
    return {SAMPLES: samples_in(batch), **{name: fingerprint(head) for name, head in heads.items()}}


def samples_in(batch: Any) -> tf.Tensor:
    """The number of samples of a batch of tensors, of the first one if they differ: a scalar, int64."""
    return rows.size_of(tf.nest.flatten(batch)[0])


def fingerprint(tensors: Any) -> tf.Tensor:
    """A hash, int64, of all dense tensors in a structure."""
    dense = [t for t in tf.nest.flatten(tensors) if isinstance(t, tf.Tensor)]
    return tf.add_n([tf.constant(0, tf.int64), *[_hash(t) for t in dense if t.dtype.is_numpy_compatible]])


def named(batch: Any) -> dict[str, Any]:
    """The tensors of a batch, or of an element of a dataset, each by its name as in ``x``, ``y`` or ``x[image]``."""
    if isinstance(batch, tuple) and len(batch) <= len(_OF_BATCH):
        parts = {name: part for name, part in zip(_OF_BATCH, batch, strict=False) if part is not None}
    else:
        parts = {_OF_BATCH[0]: batch}
    return {name + path: tensor for name, part in parts.items() for path, tensor in _paths(part)}


def _paths(structure: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(structure, Mapping):
        members: Any = sorted(structure.items(), key=lambda item: str(item[0]))
    elif isinstance(structure, (tuple, list)):
        members = enumerate(structure)
    else:
        yield "", structure
        return
    for key, member in members:
        yield from ((f"[{key}]{path}", tensor) for path, tensor in _paths(member))


def _hash(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype == tf.string:
        return tf.reduce_sum(tf.strings.to_hash_bucket_fast(tf.reshape(tensor, [-1]), 1 << 62))
    numbers = tf.cast(tensor, tf.uint8) if tensor.dtype == tf.bool else tensor
    return tf.bitcast(tf.fingerprint(tf.reshape(numbers, [1, tf.size(numbers)]))[0], tf.int64)


def _proportion_fingerprint(batch: Any) -> tf.Tensor:
    """A fingerprint of the proportion of the sizes of a batch's tensors: 0 if they are the same."""
    proportion = rows.proportion(tf.nest.flatten(batch))
    return tf.where(tf.reduce_all(proportion == 1), tf.constant(0, tf.int64), fingerprint(proportion))


def _head(tensor: Any) -> tf.Tensor | None:
    """The first sample of a dense tensor, or what there is of the first ones in a ragged or sparse tensor; None if nothing."""
    if isinstance(tensor, tf.Tensor):
        return tensor[:1]
    values = tensor.flat_values if isinstance(tensor, tf.RaggedTensor) else getattr(tensor, "values", None)
    return None if values is None else values[:_OF_FIRST]


def _structure(dataset: tf.data.Dataset, element: tuple[Any, ...]) -> Any:
    """An element as the dataset has it: `map` passes the members of a tuple one by one."""
    return element if isinstance(dataset.element_spec, tuple) else element[0]
