"""A dataset whose first elements are looked at: whoever iterates over it gets all of them, once, in their order."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras.adapter import iterators
from tarantella.keras.adapter.first_elements import WatchedDataset


def shuffled() -> tf.data.Dataset:
    return tf.data.Dataset.range(23).shuffle(23, seed=3).batch(4)


def taken(dataset, at_once, sizes):
    """The elements of one iteration, of which so many are taken at a time, the last size again and again."""
    iterator, found = iter(dataset), []
    sizes = iter([*sizes, *[sizes[-1]] * 20])
    for size in sizes:
        dataset.look()
        for _ in range(size):
            element = iterator.get_next_as_optional()
            if not element.has_value():
                return found
            found.append(element.get_value().numpy().tolist())
        dataset.go_on()
    return found


@pytest.mark.parametrize("at_once", [1, 2, 4, 10])
@pytest.mark.parametrize("sizes", [[1], [2], [4], [1, 4], [3, 1, 2]])
def test_each_element_comes_once(at_once, sizes):
    if max(sizes) > at_once:
        pytest.skip("nobody takes more at once than it said")
    looked_at = []
    dataset = WatchedDataset(shuffled(), at_once, lambda element: looked_at.append(element.numpy().tolist()))
    truth = shuffled()
    for _ in range(2):  # a shuffle gives another order in the second iteration
        expected = [batch.numpy().tolist() for batch in truth]
        assert taken(dataset, at_once, sizes) == expected
        assert looked_at.pop() == expected[0]
    assert not looked_at


def test_a_generator_is_not_asked_for_more():
    drawn = []

    def generator():
        for i in range(5):
            drawn.append(i)
            yield np.full(2, i)

    spec = tf.TensorSpec([2], tf.int64)
    dataset = WatchedDataset(tf.data.Dataset.from_generator(generator, output_signature=spec), 1, lambda _: None)
    assert [element[0] for element in taken(dataset, 1, [1])] == [0, 1, 2, 3, 4]
    assert drawn == [0, 1, 2, 3, 4]


def test_an_empty_dataset_is_not_looked_at():
    dataset = WatchedDataset(tf.data.Dataset.range(0), 2, lambda _: pytest.fail("there is nothing to look at"))
    assert taken(dataset, 2, [1]) == []


def test_the_spec_is_kept():
    """A step has one trace: the elements that were looked at have the shapes that others may have."""
    ragged = tf.RaggedTensor.from_row_lengths(np.arange(10), [1, 2, 3, 4])
    sparse = tf.sparse.from_dense(np.eye(4, 5))
    given = tf.data.Dataset.from_tensor_slices({"ragged": ragged, "sparse": sparse, "dense": np.eye(4)}).batch(3)
    dataset = WatchedDataset(given, 1, lambda _: None)
    assert dataset.element_spec == given.element_spec
    traces = []

    @tf.function
    def first_of(iterator):
        traces.append(1)
        element = next(iterator)
        return tf.reduce_sum(element["ragged"]), element["dense"], element["sparse"].values

    iterator, sums = iter(dataset), []
    for _ in range(2):
        dataset.look()
        sums.append(int(first_of(iterator)[0]))
        dataset.go_on()
    assert sums == [sum(range(6)), sum(range(6, 10))]
    assert len(traces) == 1


def test_an_error_of_the_look_ends_the_iteration():
    def refuse(element):
        raise ValueError("not this one")

    dataset = WatchedDataset(shuffled(), 1, refuse)
    iter(dataset)
    with pytest.raises(ValueError, match="not this one"):
        dataset.look()


def test_an_iterator_that_is_not_used_is_asked_for_nothing():
    """Keras makes one more at the end of each epoch. A shuffle would begin anew, and a generator would lose a batch."""
    drawn, looked_at = [], []

    def generator():
        drawn.append(len(drawn))
        yield from range(3)

    given = tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([], tf.int64))
    dataset = WatchedDataset(given, 1, lambda element: looked_at.append(int(element)))
    iter(dataset)
    assert not drawn
    assert taken(dataset, 1, [1]) == [0, 1, 2]
    assert drawn == looked_at == [0]


@pytest.fixture
def slow_end():
    """Something takes long to be destroyed, until the event that this gives is set; it says so in the list."""
    ended, begun, may_end = [], threading.Event(), threading.Event()

    class Slow:
        def __del__(self):
            begun.set()
            assert may_end.wait(60)
            ended.append("slow")

    iterators._start()
    iterators._ended.put(Slow())
    assert begun.wait(60)
    yield may_end, ended
    may_end.set()


def test_nobody_waits_for_the_end_of_an_iterator(slow_end):
    """It is destroyed elsewhere, even while something else takes long to be destroyed."""
    drawn, (may_end, ended) = [], slow_end

    def generator():
        try:
            yield from range(9)
        finally:
            ended.append("generator")

    given = tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([], tf.int64))
    dataset = WatchedDataset(given, 1, lambda element: drawn.append(int(element)))
    iterator = iter(dataset)
    dataset.look()
    del iterator
    dataset._fresh = dataset._held = None
    assert (drawn, ended) == ([0], [])
    may_end.set()
    deadline = time.monotonic() + 60
    while len(ended) < 2 and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert ended == ["slow", "generator"]


def test_a_cache_in_a_file_is_given_up_before_the_next_iterator_begins(tmp_path, slow_end):
    """A cache that was not finished is deleted when its iterator is destroyed: later it would be that of the next iterator."""
    data = tf.data.Dataset.range(9).cache(str(tmp_path / "cache"))
    first = iterators.iterator_of(data)
    assert int(next(first)) == 0
    del first
    assert not list(tmp_path.iterdir())
    assert [int(i) for i in iterators.iterator_of(data)] == list(range(9))
    assert (tmp_path / "cache.index").exists()


AT_EXIT = """
import threading
import time

import tensorflow as tf

from tarantella.keras.adapter import iterators

asked = threading.Event()


class Slow:
    def __del__(self):
        time.sleep(3600)


def generator():
    yield 0
    asked.set()
    time.sleep(1)  # Python goes on in no thread once the interpreter ends
    yield 1


given = tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([], tf.int64))
iterator = iterators.iterator_of(given.map(lambda i: i, num_parallel_calls=2).prefetch(1))
next(iterator)
assert asked.wait(60)
iterators._ended.put(Slow())
del iterator
"""


def test_the_interpreter_ends_while_a_pipeline_runs_python():
    """It would wait for ever for a call that cannot end."""
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], timeout=90, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
