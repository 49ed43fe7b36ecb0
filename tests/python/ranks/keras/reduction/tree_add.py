"""`ops.tree_add` and a reducer with ``tree=True``, against trees of NumPy; argv: a folder for the findings."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, raised, run
from tarantella.keras.reduction import ops
from tarantella.keras.reduction.reducer import Reducer, Spec

SHARDS = 8
COUNT = 20_011
TYPES = ("float32", "float64")


def shard(index: int, dtype: str) -> np.ndarray:
    """Values whose sum depends on its order."""
    random = np.random.default_rng(index)
    return (random.standard_normal(COUNT) * 2.0 ** random.integers(0, 12, COUNT)).astype(dtype)


def numpy_tree(terms: list[np.ndarray]) -> np.ndarray:
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def expected(weights: list[float]) -> list[np.ndarray]:
    return [numpy_tree([shard(i, t) * np.dtype(t).type(w) for i, w in enumerate(weights)]) for t in TYPES]


def tree(shards: list[list[tf.Tensor]], weights: list[tf.Tensor], at_once: int = SHARDS) -> tuple[list[tf.Tensor], tf.Tensor]:
    """What a rank does with its shards: their weighted sum, so many at once, and what is left to weight."""
    one = tf.constant(1.0, tf.float64)
    while len(shards) > 1:
        groups = [slice(i, i + at_once) for i in range(0, len(shards), at_once)]
        shards = [ops.tree_add(shards[group], weights[group]) for group in groups]
        weights = [one] * len(shards)
    return shards[0], weights[0]


WEIGHTS = [(i + 1) / 36 for i in range(SHARDS)]
ONES = [1.0, 1.0]


def own_shards(first: int, n: int) -> tuple[list[list[tf.Tensor]], list[tf.Tensor]]:
    shards = [[tf.constant(shard(i, dtype)) for dtype in TYPES] for i in range(first, first + n)]
    return shards, [tf.constant(w, tf.float64) for w in WEIGHTS[first : first + n]]


def same_bits(sums: list[tf.Tensor], truth: list[np.ndarray]) -> list[bool]:
    return [a.numpy().tobytes() == b.tobytes() for a, b in zip(sums, truth, strict=True)]


@check
def eight_shards_on_one_rank() -> list[list[bool]]:
    shards, weights = own_shards(0, SHARDS)
    totals = [compute(shards, weights, at_once) for at_once in (2, 4, 8) for compute in (tree, tf.function(tree))]
    return [same_bits(total, expected(WEIGHTS)) for total, _ in totals]


@check
def eight_shards_on_all_ranks() -> list[list[bool]]:
    each = SHARDS // tnt.get_size()
    found = []
    for threshold in (0.0, 100_000.0):
        reducer = Reducer("gradients", [Spec(t, COUNT, t) for t in TYPES], fusion_threshold=threshold, tree=True)

        @tf.function
        def step(shards: list[list[tf.Tensor]], weights: list[tf.Tensor], reducer: Reducer = reducer) -> list[tf.Tensor]:
            return reducer.reduce(*tree(shards, weights))

        found.append(same_bits(step(*own_shards(tnt.get_rank() * each, each)), expected(WEIGHTS)))
        reducer.close()
    return found


@check
def equal_names() -> list[object]:
    """Keras allows variables with equal paths."""
    reducer = Reducer("gradients", [Spec(name, 1, "float32") for name in ("kernel", "kernel", "kernel (2)")])
    sums = [float(total[0]) for total in reducer.reduce([tf.constant([value]) for value in (1.0, 10.0, 100.0)])]
    reducer.close()
    return [sums, [text.partition("tensors, ")[2] for text in reducer.descriptions]]


@check
def a_weight_of_zero() -> list[object]:
    broken = [tf.constant([float("nan"), float("inf"), -1.0])]
    whole = [tf.constant([1.0, 2.0, 3.0])]
    sums = [
        ops.tree_add([broken, whole], [0.0, 1.0]),
        ops.tree_add([whole, broken], [2.0, 0.0]),
        ops.tree_add([broken, broken], [0, 0]),
    ]
    return [total.numpy().tolist() for [total] in sums]


@check
def inputs_that_others_need_stay() -> list[object]:
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        inner = x * 2.0
        [first] = ops.tree_add([[inner], [y]], ONES)
        [second] = ops.tree_add([[inner], [inner]], ONES)
        [third] = ops.tree_add([[variable.read_value()], [first]], ONES)
        return first, second, third, inner

    x, y = tf.constant([1.0, 1.0]), tf.constant([10.0, 20.0])
    [eager] = ops.tree_add([[x], [y]], ONES)
    results = [t.numpy().tolist() for t in step(x, y)]
    return [*results, eager.numpy().tolist(), x.numpy().tolist(), y.numpy().tolist(), variable.numpy().tolist()]


@check
def denormals_are_kept() -> bool:
    tiny = tf.constant([1e-40, 3e-45])
    [total] = tf.function(lambda: ops.tree_add([[tiny], [tiny]], [1.0, 0.5]))()
    return total.numpy().tobytes() == (tiny.numpy() + tiny.numpy() * np.float32(0.5)).tobytes()


@check
def every_type_and_shape() -> list[object]:
    sums = []
    for dtype in (tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int32, tf.int64):
        [total] = ops.tree_add([[tf.constant([[1, 2]], dtype)], [tf.constant([[3, 4]], dtype)]], ONES)
        sums.append([total.dtype.name, tf.cast(total, tf.float32).numpy().tolist()])
    lists = [[tf.constant(1.5), tf.zeros([0, 3])], [tf.constant(2.0), tf.zeros([0, 3])]]
    scalar, empty = ops.tree_add(lists, [2.0, 3.0])
    alone, _ = ops.tree_add(lists[:1], [2.0])
    return [*sums, float(scalar), list(empty.shape), float(alone), ops.tree_add([[], []], ONES), ops.tree_add([], [])]


@check
def static_shapes() -> list[object]:
    spec = tf.TensorSpec([None, 3], tf.float32)
    function = tf.function(lambda a, b: ops.tree_add([[a, a[0]], [b, b[0]]], ONES)).get_concrete_function(spec, spec)
    return [shape.as_list() for shape in function.output_shapes]


@check
def what_is_not_needed_is_not_computed() -> float:
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
    def step(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        ops.tree_add([[a], [b]], ONES)  # would fail
        return a[0]

    return float(step(tf.zeros([2]), tf.zeros([3])))


@check
def misuse() -> list[object]:
    one = tf.constant([1.0])
    return [
        raised(ops.tree_add, [[one], [one, one]], ONES),
        raised(ops.tree_add, [[one], [one]], [1.0]),
        raised(ops.tree_add, [[one], [tf.constant([1.0, 2.0])]], ONES),
        raised(ops.tree_add, [[one], [tf.constant([1])]], ONES),
        raised(ops.tree_add, [[tf.constant([1])], [tf.constant([1])]], [1.0, 0.5]),
        raised(ops.tree_add, [[one], [one]], [1.0, float("nan")]),
    ]


@check
def ranks_that_differ() -> list[str]:
    return raised(Reducer, "gradients", [Spec("kernel", 1, "float32")], tree=tnt.get_rank() == 1)


run(sys.argv[1])
