"""Random numbers inside a step: each rank draws its own, as each sample does on one device.

All ranks have the same weights, the same seeds, and the same generators in the same states. So they would draw the same masks
of dropout, each for its part of the batch. Inside a step every seed is changed by the rank where an operation takes it. The
states of generators are not changed: they stay equal on all ranks, in checkpoints as well. The numbers depend on the user's
seed and on the rank alone. Rank 0 draws what one device draws.

What is not noise is left alone: initial values of variables, and operations of datasets, which no step runs.
"""

import enum
import functools
import re
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.adapter import random_operations
from tarantella.keras.adapter.random_operations import SEEDS, Draw, Seeds
from tarantella.keras.reduction import weights
from tarantella.keras.xla import operations

_SCOPE = "tnt_noise"  # part of the name of each operation that drew in one of the contexts below
_SPREAD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: its multiples are far from each other, and from small numbers

_FALLING_ROWS = 64  # of more rows, random numbers in a trial are the same
_FALL = 1.2e-7  # from row to row: two units in the last place of a float32
_NUMBER = 0.7  # in the place of each random number of a trial: a dropout of one's own at a rate of 0.5 leaves something


class _Kind(enum.Enum):
    """How random numbers are drawn in a context."""

    BY_RANK = enum.auto()
    BATCH = enum.auto()
    SAME = enum.auto()
    BY_SHARD = enum.auto()
    UNCHANGED = enum.auto()
    CONSTANT = enum.auto()


@dataclass(frozen=True)
class _Context:
    """A context that was entered.

    Attributes:
        change: what changes the seeds of this rank: 63 bits, 0 on rank 0.
        in_graph: whether it was entered in a function that is being traced.
    """

    kind: _Kind
    change: int
    in_graph: bool


class _ThreadContexts(threading.local):
    """The contexts of each thread: the threads that make batches draw at the same time, and not inside the step."""

    def __init__(self) -> None:
        self.contexts: list[_Context] = []
        self.draws = 0  # in all contexts so far
        self.scopes: list[str] = []  # of operations in graphs that drew by rank


_thread_contexts = _ThreadContexts()


@contextmanager
def noise_by_rank() -> Iterator[None]:
    """Context in which each rank draws random numbers of its own, as inside a step of `tnt.Model`. Not collective.

    For training loops of one's own, and only around what draws noise: the initial values of variables that are made inside are
    as they would be outside. `tf.random`, `tf.nn`, `keras.random`, layers and `tf.random.Generator` are affected, with or
    without seeds of their own. The numbers depend on the seeds of the script and on the rank. The states of generators stay
    as equal as they were. Rank 0 draws what it would draw outside. On one rank nothing is changed.

    A `tf.function` that is called inside has a trace of its own for it.

    Examples:
        >>> with tnt.noise_by_rank(), tf.GradientTape() as tape:
        ...     loss = loss_fn(y, model(x, training=True))     # each rank's dropout has masks of its own
    """
    if runtime.get_size() == 1:
        yield
        return
    _install()
    change = runtime.get_rank() * _SPREAD % (1 << 63)
    with _enter(_Kind.BY_RANK, change), tf.variable_creator_scope(_initial_values):
        yield
    graph = context.graph()
    if graph is not None and runtime.is_master_rank():
        _warn_of_other_functions(graph)


@contextmanager
def noise_by_shard() -> Iterator[None]:
    """Context of a shard in `reproducible` mode, where the states of generators are the shard's own."""
    with _enter(_Kind.BY_SHARD):
        yield


@contextmanager
def same_noise() -> Iterator[None]:
    """Context inside a step of `tnt.Model`, or inside `tnt.noise_by_rank`, in which all ranks draw the same random numbers.

    For what a whole batch has in common, such as one random direction or a layer that is left out for all samples. Draw with
    `keras.random`, `tf.random.stateless_*` or a `tf.random.Generator`, and equally often on all ranks. Generators of the
    model's layers are given rank 0's state when `fit` begins. Seed others alike. Elsewhere the context changes nothing.

    Raises:
        UnsupportedError: in a `reproducible` model, and (from the calls inside) for `tf.random.normal` and other operations
            with a hidden state, which ranks do not keep alike.

    Examples:
        >>> with tnt.same_noise():
        ...     direction = keras.random.normal([8], seed=self.seed_generator)
    """
    inside = _innermost()
    if inside is not None and inside.kind is _Kind.BY_SHARD:
        raise UnsupportedError(
            "tnt.same_noise() in a reproducible model: each shard draws from generators of its own. Compute what a whole batch "
            "has in common before the step, in the dataset or in a callback"
        )
    if inside is None or inside.kind in (_Kind.UNCHANGED, _Kind.CONSTANT):
        yield
        return
    with _enter(_Kind.SAME):
        yield


@contextmanager
def noise_of_batch() -> Iterator[None]:
    """Context inside a step of what each rank computes of the samples of all: it draws what one device draws.

    Operations with a hidden state draw by rank all the same: ranks do not keep that alike.
    """
    inside = _innermost()
    if inside is None or inside.kind is not _Kind.BY_RANK:
        yield
        return
    with _enter(_Kind.BATCH, inside.change):
        yield


@contextmanager
def noise_of_update() -> Iterator[None]:
    """Context inside a step of what an optimizer draws, such as Langevin dynamics: the same on all ranks, as weights are."""
    inside = _innermost()
    with _enter(_Kind.SAME) if inside is not None and inside.kind is _Kind.BY_RANK else nullcontext():
        yield


@contextmanager
def constant_noise() -> Iterator[None]:
    """Context of a trial, in which random numbers are all the same: what is computed of samples does not depend on their place.

    Raises:
        RefusedInTrial: (from the calls inside) for an operation that has no such number, such as a shuffle.
    """
    _install()
    with _enter(_Kind.CONSTANT):
        yield


def start_generators_alike(model: Any) -> None:
    """Gives the generators of the model's layers, and Keras' common one, rank 0's states on all ranks. Collective."""
    has_common = bool(collectives.all_reduce(len(adapter.common_seed_variables()), op="max"))
    weights.broadcast([*adapter.seed_variables(model), *adapter.common_seed_variables(make=has_common)])


@contextmanager
def _enter(kind: _Kind, change: int = 0) -> Iterator[None]:
    _thread_contexts.contexts.append(_Context(kind, change, in_graph=not tf.executing_eagerly()))
    try:
        yield
    finally:
        _thread_contexts.contexts.pop()


def _innermost() -> _Context | None:
    """The context that counts here. None also where a function that is being traced was left, as for initial values."""
    found = _thread_contexts.contexts[-1] if _thread_contexts.contexts else None
    return None if found is None or (found.in_graph and tf.executing_eagerly()) else found


def _initial_values(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    """Makes a variable. Its initial value is the same on all ranks."""
    with _enter(_Kind.UNCHANGED):
        return next_creator(**kwargs)


# ------------------------------------------------------------------------------------------------------------ one draw


@functools.cache
def _install() -> None:
    random_operations.replace_draws(lambda: _mark() is not None, _draw)
    random_operations.trace_apart(_mark)


def _mark() -> tuple[_Kind, int] | None:
    """The context of random draws here; None: they are TensorFlow's own."""
    inside = _innermost()
    return None if inside is None or inside.kind in (_Kind.BY_SHARD, _Kind.UNCHANGED) else (inside.kind, inside.change)


def number_of_draws() -> int:
    """How often random numbers were drawn on this thread so far, in contexts that change them."""
    return _thread_contexts.draws


@contextmanager
def naming_layers(model: Any, said: set[str]) -> Iterator[None]:
    """In this context a step is traced; then the log says which layers have drawn noise by rank.

    Args:
        said: the names of those that were named before.
    """
    _thread_contexts.scopes.clear()
    yield
    kinds = {layer.name: type(layer).__name__ for layer in adapter.layers_of(model)}
    found = [_layer_of(scope, model, kinds) for scope in _thread_contexts.scopes]
    _thread_contexts.scopes.clear()
    new = [name for name in dict.fromkeys(found) if name not in said]
    if new:
        said.update(new)
        shown = [f"{name!r} ({kinds[name]})" if name else "the step itself" for name in new]
        more = f" and {len(shown) - 8} others" if len(shown) > 8 else ""
        runtime.logger.info(
            "noise: each rank draws its own for its samples, so results differ from those of one device as with another seed, "
            "in %s%s",
            ", ".join(shown[:8]),
            more,
        )


def _layer_of(scope: str, model: Any, names: Container[str]) -> str:
    """The name of the innermost layer in an operation's scope; empty if there is none."""
    parts = scope.split("/")
    if parts[0] != model.name:  # Keras 3 opens each scope twice, and TensorFlow makes the second name another one
        parts = [re.sub(r"_\d+$", "", part) for part in parts]
    return next((part for part in reversed(parts) if part in names), "")


def _draw(draw: Draw) -> Any:
    _thread_contexts.draws += 1
    inside = _innermost()
    if inside is not None and inside.kind is _Kind.CONSTANT:
        return _constant(draw)
    graph = context.graph()
    if inside is not None and inside.kind is _Kind.BY_RANK and graph is not None:
        _thread_contexts.scopes.append(graph.get_name_scope())
    with tf.name_scope(_SCOPE):
        if inside is None or inside.kind is _Kind.SAME:
            if draw.seeds is Seeds.ATTRIBUTES:
                raise UnsupportedError(
                    f"the operation {draw.operation} in an optimizer, or inside tnt.same_noise(): its hidden state begins anew "
                    "when a rank traces its step again, so ranks would not stay alike. Draw by keras.random, "
                    "tf.random.stateless_* or a tf.random.Generator (legacy Keras' layers do so after "
                    "keras.backend.experimental.enable_tf_random_generator())"
                )
            return draw.run()
        is_alike = inside.kind is _Kind.BATCH and draw.seeds is not Seeds.ATTRIBUTES
        return draw.run() if not inside.change or is_alike else _FOLDED[draw.seeds](draw, inside.change)


def _constant(draw: Draw) -> Any:
    """A constant of the draw's shape: 0.7, or the integer as far between the limits.

    Numbers without limits decrease along the first axis, by less than a trial's tolerance. Sorting by them, as
    `keras.random.shuffle` does, thus changes the order of the samples.
    """
    arguments = draw.arguments
    if draw.is_shuffle:  # another order, and one that a part of the samples has as well
        return tf.reverse(arguments["value" if "value" in arguments else "input"], [0])
    if draw.operation == "RandomIndexShuffle":  # as a shuffle
        index = tf.convert_to_tensor(arguments["index"])
        return tf.cast(arguments["max_index"], index.dtype) - index
    if not draw.has_plain_numbers:
        raise context.RefusedInTrial(f"it draws random numbers by {draw.operation}")
    shape = tf.convert_to_tensor(arguments["shape"])
    if "minval" in arguments:
        low, high = (tf.convert_to_tensor(arguments[name]) for name in ("minval", "maxval"))
        return tf.fill(shape, low + tf.cast(_NUMBER * tf.cast(high - low, tf.float64), low.dtype))
    dtype = tf.as_dtype(arguments.get("dtype", tf.float32))
    filled = tf.fill(shape, tf.cast(_NUMBER, dtype))
    if not shape.shape[0]:
        return filled
    rows = tf.cast(shape[0], tf.int32)
    falling = tf.where(rows <= _FALLING_ROWS, _FALLING_ROWS - tf.range(rows), 0)
    step = _FALL if dtype.is_floating else 1
    return filled + tf.cast(step * tf.cast(tf.reshape(falling, [-1, *[1] * (shape.shape[0] - 1)]), tf.float64), dtype)


def _by_attributes(draw: Draw, change: int) -> Any:
    seed, seed2 = (draw.arguments.get(name) or 0 for name in ("seed", "seed2"))
    if seed == seed2 == 0:
        return draw.run()  # without any seed: each process draws its own
    return draw.run(seed2=seed2 ^ change)  # never 0: seeds are below 2**31, and changes above


def _by_tensor(draw: Draw, change: int) -> Any:
    seed = tf.convert_to_tensor(draw.arguments["seed"], dtype_hint=tf.int64)
    return draw.run(seed=tf.bitwise.bitwise_xor(seed, tf.constant(change >> 32, seed.dtype)))


def _by_key(draw: Draw, change: int) -> Any:
    key = tf.convert_to_tensor(draw.arguments["key"], tf.uint64)
    return draw.run(key=tf.bitwise.bitwise_xor(key, tf.constant(change, tf.uint64)))


def _by_variable(draw: Draw, change: int) -> Any:
    """These operations read and advance the variable themselves: it has another key for the time of the draw."""
    handle = draw.arguments["resource"]

    def change_key() -> None:
        state = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
        changed = tf.concat([state[:-1], tf.bitwise.bitwise_xor(state[-1:], tf.constant(change, tf.int64))], 0)
        tf.raw_ops.AssignVariableOp(resource=handle, value=changed)

    change_key()
    try:
        return draw.run()
    finally:
        change_key()


_FOLDED: dict[Seeds, Callable[[Draw, int], Any]] = {
    Seeds.ATTRIBUTES: _by_attributes,
    Seeds.TENSOR: _by_tensor,
    Seeds.KEY: _by_key,
    Seeds.VARIABLE: _by_variable,
}


# --------------------------------------------------------------------------------------------- functions traced elsewhere

_warned_layers: set[str] = set()


def _warn_of_other_functions(graph: Any) -> None:
    """Functions that are not traced anew, such as those of a SavedModel, draw as they were made to: alike on all ranks."""
    for function, draws in operations.functions_that_draw(graph, SEEDS, _SCOPE).items():
        name = re.sub(r"^__[a-z]+_|_\d+$", "", function)
        if name not in _warned_layers:
            _warned_layers.add(name)
            runtime.logger.warning(
                "the step calls %s, which was traced or loaded from a file before: what it draws by %s is the same on all "
                "ranks. Call the Python function in its place, and each rank draws numbers of its own",
                name,
                ", ".join(draws),
            )
