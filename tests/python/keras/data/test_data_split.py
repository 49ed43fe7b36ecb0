"""How batches are split among ranks: at the end, or before the work where that gives the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tarantella import data as tnt_data
from tarantella import runtime
from tarantella.keras.data import pushdown, split
from tarantella.keras.data.batches import GlobalBatches, Sharing

SIZES = (2, 4)
among = split.Division.among


def numbers(n: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(n)


def doubled(i: tf.Tensor) -> tf.Tensor:
    return 2 * i


def pair(i: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    return tf.cast(i, tf.float32), {"label": i % 5, "name": tf.strings.as_string(i)}


def elements(dataset: tf.data.Dataset, limit: int = 50) -> list:
    return [tf.nest.map_structure(lambda t: t.numpy(), element) for element in dataset.take(limit)]


def same(left: list, right: list) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        tf.nest.assert_same_structure(a, b)
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
            np.testing.assert_array_equal(x, y)


def without_fingerprint(elements: list) -> list:
    return [(batch, share[:2]) for shards in elements for batch, share in shards]


def fingerprints(dataset: tf.data.Dataset) -> list[int]:
    return [share[2] for shards in elements(dataset) for _, share in shards]


EARLY = {
    "map": lambda: numbers(24).map(doubled).batch(12),
    "several maps, one parallel": lambda: numbers(24).map(doubled).map(pair, num_parallel_calls=2).batch(12),
    "a list from map": lambda: numbers(24).map(lambda i: [i, i + 1]).batch(12),
    "a dict from map": lambda: numbers(24).map(lambda i: {"a": i}).batch(12),
    "a dict before map": lambda: tf.data.Dataset.from_tensor_slices({"a": np.arange(24)}).map(lambda d: d["a"]).batch(12),
    "pairs before map": lambda: tf.data.Dataset.zip((numbers(24), numbers(24))).map(lambda a, b: (a + b, (b, a))).batch(12),
    "shorter last batch": lambda: numbers(31).map(doubled).batch(12).prefetch(2),
    "last batch dropped": lambda: numbers(26).map(doubled).batch(12, drop_remainder=True),
    "shuffled": lambda: numbers(24).shuffle(24, seed=5).map(doubled).batch(12).prefetch(tf.data.AUTOTUNE),
    "without end": lambda: numbers(7).repeat().map(doubled).batch(12),
    "repeated after": lambda: numbers(31).map(doubled).batch(12).repeat(3),
    "taken and skipped": lambda: numbers(60).map(doubled).batch(12).skip(1).take(2),
    "options": lambda: numbers(24).map(doubled).batch(12).with_options(tf.data.Options()),
    "text": lambda: tf.data.Dataset.from_tensor_slices([f"file {i}" for i in range(24)]).map(tf.strings.length).batch(12),
}


DIVISIONS = ((2, None), (4, None), (2, 4), (3, 6))
# each dataset by two divisions, one of them with shards
IN_PARTS = [(name, *DIVISIONS[i]) for at, name in enumerate(EARLY) for i in (at % 2, 2 + at // 2 % 2)]


@pytest.mark.parametrize(("name", "size", "shards"), IN_PARTS)
def test_early_gives_what_late_gives(name, size, shards):
    for rank in range(size):
        early = pushdown.distribute(EARLY[name](), among(size, rank, shards))
        late = split.distribute(EARLY[name](), among(size, rank, shards))
        same(without_fingerprint(elements(early)), without_fingerprint(elements(late)))


@pytest.mark.parametrize("name", EARLY)
def test_early_fingerprints_are_those_of_the_data(name):
    """Ranks with the same data agree on each batch; with other data they do not."""
    on_ranks = [fingerprints(pushdown.distribute(EARLY[name](), among(3, rank))) for rank in range(3)]
    assert on_ranks[0] == on_ranks[1] == on_ranks[2]


def test_other_data_on_a_rank_shows():
    def found(order: list[int], rank: int) -> list[int]:
        dataset = tf.data.Dataset.from_tensor_slices(order).map(doubled).batch(4)
        return fingerprints(pushdown.distribute(dataset, among(2, rank)))

    assert found([0, 1, 2, 3, 4, 5, 6, 7], 0) != found([1, 0, 2, 3, 4, 5, 6, 7], 1)


def test_each_rank_maps_its_samples_alone():
    seen: list[list[int]] = []
    for rank in range(3):
        mine: list[int] = []

        def note(i: tf.Tensor, mine: list[int] = mine) -> tf.Tensor:
            return tf.numpy_function(lambda v: (mine.append(int(v)), v)[1], [i], tf.int64, stateful=False)

        elements(pushdown.distribute(numbers(12).map(note).batch(6), among(3, rank)))
        seen.append(sorted(mine))
    assert seen == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


LATE = {
    "RangeDataset is": lambda: numbers(12),
    "PaddedBatchDataset is": lambda: numbers(12).map(doubled).padded_batch(6),
    "MapDataset is": lambda: numbers(12).batch(6).map(doubled),
    "no map": lambda: numbers(12).batch(6),
    "do not divide": lambda: numbers(12).map(doubled).batch(5),
    "is not known": lambda: numbers(12).filter(lambda i: i > 3).map(doubled).batch(6),
    "without a sample": lambda: numbers(13).map(doubled).batch(6),
    "Random": lambda: numbers(12).map(lambda i: i + tf.random.uniform([], 0, 9, tf.int64)).batch(6),
    "in any order": lambda: numbers(12).interleave(numbers, num_parallel_calls=2, deterministic=False).apply(
        tf.data.experimental.assert_cardinality(66)).map(doubled).batch(6),
}  # fmt: skip


@pytest.mark.parametrize("reason", LATE)
def test_what_is_split_at_the_end_and_why(reason):
    with pytest.raises(pushdown.PushdownError, match=reason):
        pushdown.distribute(LATE[reason](), among(2, 0))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_sparse_batches(samples, size):
    dense = np.arange(samples * 3).reshape(samples, 3) % 4
    for rank in range(size):
        batches = (tf.sparse.from_dense(dense), tf.constant(dense))
        whole, of_dense = (split.own_shards(batch, among(size, rank))[0] for batch in batches)
        np.testing.assert_array_equal(tf.sparse.to_dense(tf.sparse.reorder(whole[0])), of_dense[0])
        assert [int(n) for n in whole[1][:2]] == [int(n) for n in of_dense[1][:2]]


@pytest.mark.parametrize("batch_size", [4, 6, 9])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_tnt_data_gives_each_rank_its_part(batch_size, drop_remainder):
    samples = np.arange(1, 20)
    dataset = tf.data.Dataset.from_tensor_slices(samples).batch(batch_size, drop_remainder=drop_remainder)
    of_ranks = [tnt_data.Dataset(dataset, num_ranks=4, rank=rank) for rank in range(4)]
    parts = [elements(one.distribute_dataset_across_ranks()) for one in of_ranks]
    whole = elements(dataset)
    assert [len(part) for part in parts] == [len(whole)] * 4
    for step, batch in enumerate(whole):
        filled = np.pad(batch, (0, max(0, 4 - len(batch))))
        for rank in range(4):
            np.testing.assert_array_equal(parts[rank][step], filled[rank::4])
    assert [one.micro_batch_size for one in of_ranks] == [len(range(rank, batch_size, 4)) for rank in range(4)]
    assert of_ranks[0].num_samples == sum(map(len, whole))


def test_tnt_data_with_a_micro_batch_size():
    part = tnt_data.Dataset(numbers(12), num_ranks=2, rank=1)
    assert [b.tolist() for b in elements(part.distribute_dataset_across_ranks(3))] == [[1, 3, 5], [7, 9, 11]]
    assert [b.tolist() for b in elements(part.distribute_dataset_across_ranks(5, is_training=False))] == [
        [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]  # fmt: skip
    assert [int(i) for i in elements(part.distribute_dataset_across_ranks(3, apply_batch=False))] == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize(
    ("dataset", "micro_batch_size", "reason"),
    [(numbers(12), None, "no batch"), (numbers(12).batch(3), None, "too small"), (numbers(12).batch(8), 3, "not consistent")],
)
def test_tnt_data_refuses(dataset, micro_batch_size, reason):
    with pytest.raises(ValueError, match=reason):
        tnt_data.Dataset(dataset, num_ranks=4, rank=0).distribute_dataset_across_ranks(micro_batch_size)


def test_a_scalar_beside_samples_is_named():
    def with_scalars(x):
        return {"a": x, "scale": tf.constant(0.5)}, (x, tf.constant(0))

    with pytest.raises(ValueError, match=r"has a scalar, element\[0\]\['scale'\], element\[1\]\[1\], beside tensors with axes"):
        split.check_batched(numbers(12).batch(4).map(with_scalars).element_spec)
    with pytest.raises(ValueError, match="is not batched"):
        split.check_batched(numbers(12).map(with_scalars).element_spec)


@pytest.mark.parametrize(
    ("dataset", "warned"),
    [
        (lambda: numbers(24).map(doubled, num_parallel_calls=2, deterministic=False).batch(8), True),
        (lambda: numbers(24).batch(8).with_options(any_order()), True),
        (lambda: numbers(24).map(doubled, num_parallel_calls=2).batch(8), False),
    ],
)
def test_batches_in_any_order_are_warned_of(monkeypatch, dataset, warned):
    said: list[str] = []
    monkeypatch.setattr(runtime.logger, "warning", lambda text, *words: said.append(text % words))
    GlobalBatches("training data", dataset()).parts(Sharing(), None)
    assert [text.partition(" lets")[0] for text in said] == ["training data: deterministic=False"] * warned


def any_order() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = False
    return options


@pytest.mark.parametrize("size", range(1, 9))
def test_ranks_that_are_left_share_all_shards(size):
    divisions = [among(size, rank, 8) for rank in range(size)]
    taken = [shard for one in divisions for shard in one.own if shard < one.shards]
    assert taken == list(range(8))
    assert {one.shards for one in divisions} == {8}
    assert {len(one.own) for one in divisions} <= {8 // (1 << (size.bit_length() - 1)), 1}


def test_a_rank_without_a_shard_counts_no_sample():
    batch = (tf.range(6), tf.range(6) * 2)
    ((part, (samples, total, _)),) = split.own_shards(batch, among(3, 1, 2))
    assert (int(samples), int(total)) == (0, 6)
    assert [t.numpy().tolist() for t in part] == [[0], [0]]


@pytest.mark.parametrize(("size", "shards"), [(1, None), (3, None), (2, 4), (3, 4)])
def test_whole_batches_are_cut_where_they_are_unpacked(monkeypatch, size, shards):
    monkeypatch.setattr(split.runtime, "get_size", lambda: size)
    data = tf.data.Dataset.from_tensor_slices((tf.range(10), tf.range(10) * 2)).batch(4)
    whole = split.whole(data, shards)
    for rank in range(size):
        monkeypatch.setattr(split.runtime, "get_rank", lambda rank=rank: rank)
        expected = [split.unpack(element) for element in split.distribute(data, among(size, rank, shards))]
        for element, of_rank in zip(whole, expected, strict=True):
            found = split.unpack(element)
            tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(a, b), found, of_rank)
        assert split.batch_spec(whole)[0].shape.as_list() == [None]
        assert split.may_be_empty(whole)
