"""The split of batches, pushed down before the maps that make samples, where that changes no sample.

``source.map(decode).batch(B)`` on n ranks decodes every sample n times if batches are split at the end. If n divides B, the
samples ``batch[r::n]`` are those of ``source.shard(n, r)``, in the same order, so each rank can decode only its own:
``source.shard(n, r).map(decode).batch(B / n)``. The operations before the maps (reading file names, shuffling, repeating) run
on every rank as they do on one device. A fingerprint of every n-th element shows whether the ranks have the same data. A rank
that takes several shards of each batch keeps as many of every n elements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter import datasets
from tarantella.keras.data import split

_AFTER_THE_BATCH = ("PrefetchDataset", "OptionsDataset", "RepeatDataset", "TakeDataset", "SkipDataset")


class PushdownError(Exception):
    """The batches have to be split at the end; the text says why."""


@dataclass(frozen=True)
class Parts:
    """The operations of ``source.map(...).map(...).batch(n)``, and those after it."""

    source: tf.data.Dataset
    maps: list[tf.data.Dataset]
    batch: tf.data.Dataset
    after: list[tf.data.Dataset]
    batch_size: int
    samples: int | None
    """How many samples of the source are in batches; None if it has no end."""


def distribute(dataset: tf.data.Dataset, division: split.Division) -> tf.data.Dataset:
    """The same as `split.distribute` gives, with the maps before the batch applied only to this rank's samples.

    Raises:
        PushdownError: this would change a sample, or it is unknown whether it would.
    """
    try:
        parts = _take_apart(dataset, division)
    except AttributeError as error:
        raise PushdownError(f"this version of TensorFlow does not tell what the dataset is made of ({error})") from error
    source = parts.source
    if parts.samples is not None:
        source = source.take(parts.samples)
    none = {_before_the_maps(name): tf.constant(0, tf.int64) for name in split.named(source.element_spec)}
    samples = source.scan((tf.constant(0, tf.int64), none), _fingerprints(division.shards))
    samples = _own(samples, division)
    for map_dataset in parts.maps:
        samples = samples.map(
            _beside_the_fingerprint(datasets.mapped_function(map_dataset)),
            num_parallel_calls=datasets.parallel_calls_argument(map_dataset),
            deterministic=datasets.deterministic_argument(map_dataset),
        )
    drop_remainder = bool(datasets.drop_remainder_argument(parts.batch))
    batches = samples.batch(
        parts.batch_size // division.shards * len(division.own),
        drop_remainder=drop_remainder,
        num_parallel_calls=datasets.parallel_calls_argument(parts.batch),
    )
    result = split.map_in_order(batches.enumerate(), _with_shares(parts, len(division.own)))
    for operation in parts.after:
        result = _again(operation, result)
    return result


def _own(samples: tf.data.Dataset, division: split.Division) -> tf.data.Dataset:
    """The elements of a source that belong to this rank's shards."""
    shards, own = division.shards, division.own
    if len(own) == 1:
        return samples.shard(shards, own.start)
    kept = samples.enumerate().filter(lambda index, _: (index % shards >= own.start) & (index % shards < own.stop))
    rounds, rest = divmod(n := int(samples.cardinality()), shards)
    known = n if n < 0 else rounds * len(own) + min(max(rest - own.start, 0), len(own))
    return kept.map(lambda _, element: element).apply(tf.data.experimental.assert_cardinality(known))


def _take_apart(dataset: tf.data.Dataset, division: split.Division) -> Parts:
    shards = division.shards
    if len(division.own) == shards:
        raise PushdownError("one rank makes all samples anyway")
    operations = list(datasets.chain(dataset))
    after = []
    while operations and datasets.kind(operations[0]) in _AFTER_THE_BATCH:
        after.append(operations.pop(0))
    if not operations or datasets.kind(operations[0]) not in datasets.PLAIN_BATCHES:
        found = f"{datasets.kind(operations[0])} is" if operations else "nothing is"
        raise PushdownError(f"{found} where it should end with batch")
    batch = operations.pop(0)
    maps: list[tf.data.Dataset] = []
    while datasets.kind(operations[0]) in datasets.MAPS:
        map_dataset = operations.pop(0)
        stateful = datasets.stateful_operation(map_dataset)
        if stateful is not None:
            raise PushdownError(
                f"a map before the batch has the operation {stateful}, whose results depend on its calls before"
            )
        maps.insert(0, map_dataset)
    if not maps:
        raise PushdownError("there is no map before the batch, so nothing to save")
    if not datasets.is_deterministic(operations[0]):
        raise PushdownError("an operation before the maps may give its elements in any order")
    batch_size = datasets.batch_size_argument(batch)
    if batch_size is None or batch_size % shards != 0:
        raise PushdownError(f"{shards} {_what(division)} do not divide the batch of {batch_size}")
    drops = datasets.drop_remainder_argument(batch)
    if drops is None:
        raise PushdownError("whether its batch drops the remainder is not known yet")
    samples = _samples(operations[0], batch_size, drops, division)
    return Parts(operations[0], maps, batch, after[::-1], batch_size, samples)


def _what(division: split.Division) -> str:
    return "ranks" if len(division.own) == 1 else "shards"


def _samples(source: tf.data.Dataset, batch_size: int, drops: bool, division: split.Division) -> int | None:
    cardinality = int(source.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        return None
    if cardinality < 0:
        raise PushdownError("how many samples it has is not known")
    rest = cardinality % batch_size
    if drops:
        return cardinality - rest
    if 0 < rest < division.shards:
        raise PushdownError(f"its last batch of {rest} leaves some of {division.shards} {_what(division)} without a sample")
    return cardinality


def _before_the_maps(name: str) -> str:
    return f"{name} before the maps"


def _fingerprints(shards: int) -> Callable[..., Any]:
    """A function for `scan`: each element comes with the fingerprints of the first of the `shards` elements around it."""

    def add_fingerprint(state: tuple[tf.Tensor, dict[str, tf.Tensor]], element: Any) -> Any:
        index, last = state

        def element_fingerprints() -> dict[str, tf.Tensor]:
            return {_before_the_maps(name): split.fingerprint(part) for name, part in split.named(element).items()}

        current = tf.cond(tf.equal(index % shards, 0), element_fingerprints, lambda: last)
        return (index + 1, current), (current, element if isinstance(element, tuple) else (element,))

    return add_fingerprint


def _beside_the_fingerprint(function: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(fingerprints: dict[str, tf.Tensor], element: tuple[Any, ...]) -> Any:
        result = function(*element)
        # as `map` does it: an element that is not a tuple is the function's only argument
        return fingerprints, tuple(result) if isinstance(result, (tuple, list)) else (result,)

    return mapped


def _with_shares(parts: Parts, own: int) -> Callable[..., Any]:
    single = not isinstance(parts.batch.element_spec, tuple)

    def with_shares(index: tf.Tensor, element: Any) -> Any:
        shard_fingerprints, batch = element
        batch = batch[0] if single else batch
        total = tf.constant(parts.batch_size, tf.int64)
        if parts.samples is not None:
            total = tf.minimum(total, parts.samples - index * parts.batch_size)
        shards = split.own_shards(batch, split.Division(own, range(own)), one_size=True)
        fingerprints = {split.SAMPLES: total, **{name: values[0] for name, values in shard_fingerprints.items()}}
        return tuple((shard, (samples, total, fingerprints)) for shard, (samples, *_) in shards)

    return with_shares


def _again(operation: tf.data.Dataset, on: tf.data.Dataset) -> tf.data.Dataset:
    match datasets.kind(operation):
        case "PrefetchDataset":
            return on.prefetch(datasets.buffer_size_argument(operation))
        case "RepeatDataset":
            return on.repeat(datasets.count_argument(operation))
        case "TakeDataset":
            return on.take(datasets.count_argument(operation))
        case "SkipDataset":
            return on.skip(datasets.count_argument(operation))
        case "OptionsDataset":
            return on.with_options(operation.options())
    raise PushdownError(f"{datasets.kind(operation)} after the batch is not known")
