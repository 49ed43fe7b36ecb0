"""The common parts of trials of losses and steps: a batch in two parts of unequal size, made-up samples, the comparison.

A number is computed of a few samples together, and of two parts of them. If it is the weighted mean of the parts' numbers,
ranks may compute their parts. If it is their sum, ranks may as well, and it is known how. If it is neither, samples are
coupled.
"""

from __future__ import annotations

import functools
import random
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import operation_seeds
from tarantella.keras.step import noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tarantella.keras.step.losses import LossKinds

TOLERANCE = 1e-3  # relative, in float32; coupling gives more on samples that differ as much as the made-up ones
_SEED = 20


class Kind(Enum):
    """How the number of a batch is made of those of its parts."""

    MEAN = "the mean over samples"
    SUM = "the sum"
    COUPLED = "neither"
    UNKNOWN = "not known"


class Answer(NamedTuple):
    """The user's choice for a loss that couples samples: the arguments of `tnt.Model`. Without one it is refused."""

    across_ranks: bool = False
    """It is computed from the samples of all ranks."""
    accept_approximate: bool = False
    """The mean of the ranks' losses is good enough."""


class NotComparable(Exception):
    """No comparison can be made; the text says why."""


class Parts(NamedTuple):
    """The numbers of samples of the two parts."""

    first: int
    second: int

    @property
    def whole(self) -> int:
        """The number of samples of both."""
        return self.first + self.second

    def weights(self) -> tuple[float, float]:
        """The part that each is of the whole."""
        return self.first / self.whole, self.second / self.whole

    def of(self, tensors: Any) -> tuple[Any, Any]:
        """The parts of a batch."""
        pieces = slice(None, self.first), slice(self.first, None)
        first, second = (tf.nest.map_structure(lambda t, rows=rows: None if t is None else t[rows], tensors) for rows in pieces)
        return first, second


def compared(
    whole: NDArray[Any],
    parts: Sequence[NDArray[Any]],
    weights: Sequence[float],
    floor: float = 0.0,
    tolerance: float = TOLERANCE,
) -> Kind:
    """How the numbers of the whole are made of those of the parts.

    Args:
        floor: differences up to this one are rounding.
        tolerance: so are those up to this part of the numbers.
    """
    if not all(np.isfinite(n).all() for n in (whole, *parts)):
        return Kind.UNKNOWN
    size = max(float(np.linalg.norm(n)) for n in (whole, *parts))
    if size <= floor or size == 0:
        return Kind.UNKNOWN
    allowed = tolerance * size + floor
    if np.linalg.norm(whole - sum(w * p for w, p in zip(weights, parts, strict=True))) <= allowed:
        return Kind.MEAN
    return Kind.SUM if np.linalg.norm(whole - sum(parts)) <= allowed else Kind.COUPLED


class TrialStep:
    """The step that a loss is computed in while it is tried: of the whole, then of its parts.

    It stands where `CurrentStep` does in a step on ranks. The sum of what the parts' losses divide by is what that of the whole
    divides by.
    """

    def __init__(self, loss_kinds: LossKinds) -> None:
        self.loss_kinds = loss_kinds
        self._weight = 1.0
        self._is_whole = True
        self._divisors: list[Any] = []
        self._place = 0

    @contextmanager
    def computing(self, weight: float) -> Iterator[None]:
        """In this context losses of a part are computed, or, of weight 1, those of the whole."""
        self._weight, self._is_whole, self._place = weight, weight == 1.0, 0
        if self._is_whole:
            self._divisors = []
        yield

    def weight(self) -> tf.Tensor:
        """The part that these samples are of the whole."""
        return tf.constant(self._weight, tf.float64)

    @property
    def weight_of_gradients(self) -> Callable[[], tf.Tensor]:
        """Gives the same."""
        return self.weight

    def counts_alone(self) -> bool:
        """No."""
        return False

    def total(self) -> tf.Tensor | None:
        """The number of samples of a batch on several ranks, of which there is none: gathering would communicate."""
        return tf.constant(0, tf.int64)

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The divisor of the loss of the whole."""
        if self._is_whole:
            self._divisors.append(divisor)
            return divisor
        if self._place >= len(self._divisors):
            raise NotComparable("it computes more losses of a part of the samples than of all")
        self._place += 1
        return self._divisors[self._place - 1]


# ------------------------------------------------------------------------------------------------------ made-up samples


def check_dense(specs: Any) -> None:
    """Raises if samples of these specs cannot be made up."""
    for spec in tf.nest.flatten(specs):
        if spec is None:
            continue
        if not isinstance(spec, tf.TensorSpec):
            raise NotComparable(f"it takes a {type(spec).__name__.removesuffix('Spec')}")
        if spec.shape.rank is None or not (spec.dtype.is_floating or spec.dtype.is_integer or spec.dtype == tf.bool):
            raise NotComparable(f"it takes a {spec.dtype.name} tensor" + (" of any rank" if spec.shape.rank is None else ""))


class Shapes:
    """The shapes of made-up tensors.

    Args:
        samples: how many.
        specs: of all tensors.
        may_shorten: if one sample has many elements, dimensions that are long become short, equal ones alike.
    """

    LARGE, SHORT, ANY, ANY_OF_IMAGE = 1 << 20, 16, 4, 32

    def __init__(self, samples: int, specs: Any, may_shorten: bool = False) -> None:
        self._samples = samples
        flat = [spec for spec in tf.nest.flatten(specs) if spec is not None]
        self._shortens = may_shorten and any(np.prod([n or self.ANY for n in spec.shape[1:]]) > self.LARGE for spec in flat)

    def of(self, spec: tf.TensorSpec) -> list[int]:
        """The shape of a tensor of this spec."""
        any_length = self.ANY if spec.shape.rank < 4 else self.ANY_OF_IMAGE
        dims = [any_length if n is None else min(n, self.SHORT) if self._shortens else n for n in spec.shape[1:]]
        return [self._samples, *dims] if spec.shape.rank else []


def tensor(value: Any) -> Any:
    """A made-up array as a tensor."""
    return None if value is None else tf.convert_to_tensor(value)


def full_type(dtype: tf.DType) -> tf.DType:
    """The type in which numbers of this one are compared: a float of 16 bits has too few for that."""
    return tf.float32 if dtype.is_floating and dtype.size < 4 else dtype


# ---------------------------------------------------------------------------------------------------------------- state


@contextmanager
def leaving_no_trace(variables: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """In this context nothing communicates, and random numbers are constant. Variables and random states are restored.

    Yields:
        A function that gives the variables their values from before, for another run inside the context.
    """
    variables = list({id(v): v for v in (*variables, *adapter.common_seed_variables())}.values())
    unwrapped = [adapter.unwrap(v) for v in variables]
    before = [_value(v) for v in unwrapped]  # no copies: TensorFlow makes one if the variable is written to

    def restore() -> None:
        for variable, value in zip(unwrapped, before, strict=True):
            _set(variable, value)

    seeds, of_python, of_numpy = operation_seeds(), random.getstate(), np.random.get_state()
    of_operations = None if seeds is None else seeds.getstate()
    if seeds is not None:
        seeds.seed(_SEED)  # other seeds than the program's: TensorFlow would go on with generators that have one of them
    try:
        with context.trial(), noise.constant_noise(), _restoring_generators():
            yield restore
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if seeds is not None and of_operations is not None:
            seeds.setstate(of_operations)
        restore()


def _value(variable: tf.Variable) -> Any:
    """Its value. The operation itself takes a fifth of the time of `read_value`, which also asks tapes and distribution."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _set(variable: tf.Variable, value: Any) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


@contextmanager
def _restoring_generators() -> Iterator[None]:
    """Each random generator that draws in this context has its state back afterwards, whoever holds it."""
    before: dict[int, tuple[Any, Any]] = {}
    methods = [(tf.random.Generator, "skip"), (tf.random.Generator, "binomial")]  # what advances the state
    if hasattr(adapter.keras, "random"):  # not in legacy Keras
        methods.append((adapter.keras.random.SeedGenerator, "next"))
    originals = [getattr(owner, name) for owner, name in methods]

    def noting(method: Any) -> Any:
        @functools.wraps(method)
        def noted(generator: Any, *args: Any, **kwargs: Any) -> Any:
            state = adapter.unwrap(generator.state)
            if id(state) not in before:
                with tf.init_scope():
                    before[id(state)] = state, np.array(state)  # a copy: some operations write to a state in its place
            return method(generator, *args, **kwargs)

        return tf.autograph.experimental.do_not_convert(noted)

    for (owner, name), method in zip(methods, originals, strict=True):
        setattr(owner, name, noting(method))
    try:
        yield
    finally:
        for (owner, name), method in zip(methods, originals, strict=True):
            setattr(owner, name, method)
        for state, value in before.values():
            state.assign(value)


def variables_in(objects: Sequence[Any]) -> list[Any]:
    """The variables that are attributes of these objects, also in lists and dicts, or that their attributes hold.

    Without those that another rank may hold: no trial changes them.
    """
    found: dict[int, Any] = {}
    for value in attributes_of(objects):
        held = [value] if adapter.is_variable(value) else getattr(value, "variables", None)
        if isinstance(held, (list, tuple)):
            found.update((id(v), v) for v in held if adapter.is_variable(v) and not adapter.is_slot(v))
    return list(found.values())


def attributes_of(objects: Sequence[Any]) -> Iterator[Any]:
    """The values of the objects' own attributes, one by one also where they are in lists and dicts."""
    for owner in objects:
        for value in list(getattr(owner, "__dict__", {}).values()):
            yield from _members(value)


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list, tuple)):
        for member in list(value.values() if isinstance(value, dict) else value):
            yield from _members(member)
    else:
        yield value
