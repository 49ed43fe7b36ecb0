"""What a step was traced into is called directly, and searched for again where it may be another one."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter.direct_calls import DirectCalls, called_directly
from tarantella.keras.adapter.front_end import keras
from tarantella.keras.adapter.one_element import Elements


def batches(rows: int = 12, features: int = 3) -> tf.data.Dataset:
    x = np.arange(rows * features, dtype=np.float32).reshape(rows, features) / rows
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)


class Counted:
    """A function that counts how often TensorFlow searches for its trace, and how often it traces it."""

    def __init__(self, function):
        self.traces = self.searches = 0

        def traced(iterator):
            self.traces += 1
            return function(iterator)

        self._traced = tf.function(traced, reduce_retracing=True)
        self.function = DirectCalls(self)

    def __call__(self, iterator):
        self.searches += 1
        return self._traced(iterator)

    def get_concrete_function(self, iterator):
        self.searches += 1
        return self._traced.get_concrete_function(iterator)


def sums(function, iterator):
    """What the function gives until the iterator has ended."""
    found = []
    while True:
        try:
            found.append(float(function(iterator)))
        except tf.errors.OutOfRangeError:
            return found


def test_the_trace_is_searched_for_twice_in_an_epoch():
    counted = Counted(lambda iterator: tf.reduce_sum(next(iterator)[0]))
    expected = [float(tf.reduce_sum(x)) for x, _ in batches()]
    for epoch in range(1, 4):
        assert sums(counted.function, iter(batches())) == pytest.approx(expected)
        assert (counted.traces, counted.searches) == (1, 2 * epoch)


def test_another_kind_of_batches_is_traced():
    counted = Counted(lambda iterator: tf.reduce_sum(next(iterator)[0]))
    for features in (3, 5, 3):
        expected = [float(tf.reduce_sum(x)) for x, _ in batches(features=features)]
        assert sums(counted.function, iter(batches(features=features))) == pytest.approx(expected)


def test_elements_of_one_kind_have_one_trace():
    counted = Counted(lambda iterator: tf.reduce_sum(next(iterator)[0]))
    elements, iterator = Elements(batches().element_spec), iter(batches())
    found = [float(counted.function(elements.next_of(iterator))) for _ in range(6)]
    assert found == pytest.approx([float(tf.reduce_sum(x)) for x, _ in batches()])
    assert (counted.traces, counted.searches) == (1, 2)


def test_variables_of_the_first_call_are_made_once():
    made = []

    def total(iterator):
        if not made:
            made.append(tf.Variable(1.0))
        return made[0].assign_add(tf.reduce_sum(next(iterator)[0]))

    counted = Counted(total)
    rows = [float(tf.reduce_sum(x)) for x, _ in batches()]
    assert sums(counted.function, iter(batches())) == pytest.approx(list(1 + np.cumsum(rows)))
    assert len(made) == 1


def test_steps_run_eagerly_as_soon_as_it_is_asked_for():
    counted = Counted(lambda iterator: tf.reduce_sum(next(iterator)[0]))
    iterator = iter(batches())
    for _ in range(3):
        counted.function(iterator)
    traces = counted.traces
    tf.config.run_functions_eagerly(True)
    try:
        counted.function(iterator)
    finally:
        tf.config.run_functions_eagerly(False)
    assert counted.traces == traces + 1  # the function ran, not its trace


def test_an_iterator_is_not_kept():
    counted = Counted(lambda iterator: tf.reduce_sum(next(iterator)[0]))
    iterator = iter(batches())
    for _ in range(3):
        counted.function(iterator)
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None


def compiled(**how):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **how)
    return model


@pytest.mark.parametrize(
    "how", [{}, {"steps_per_execution": 2}, {"run_eagerly": True}], ids=["steps", "two at once", "eagerly"]
)
def test_training_is_that_of_keras(how):
    plain, watched = compiled(**how), compiled(**how)
    adapter.watch_functions(watched)
    for model in (plain, watched):
        model.fit(batches(), epochs=2, verbose=0, validation_data=batches(4))
        model.train_on_batch(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))
    for ours, theirs in zip(watched.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert plain.evaluate(batches(), verbose=0) == watched.evaluate(batches(), verbose=0)


def test_the_steps_of_a_watched_model_are_called_directly(monkeypatch):
    called = []
    monkeypatch.setattr(DirectCalls, "__call__", lambda self, iterator: called.append(iterator) or self._traced(iterator))
    model = compiled()
    adapter.watch_functions(model)
    model.fit(batches(), verbose=0)
    assert len(called) == 6
    model.evaluate(batches(), verbose=0)
    assert len(called) == 12


def test_a_function_that_traces_nothing_is_left_as_it_is():
    model = compiled(run_eagerly=True)
    model.make_train_function()
    assert called_directly(model.train_function) is model.train_function
