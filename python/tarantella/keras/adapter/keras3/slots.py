"""The state of an optimizer of Keras 3, made so that each rank holds a part of it.

An optimizer makes all its variables by `add_variable`. While it is built here, those that belong to another rank get a tensor
without elements for a value: nothing is allocated for them, and the list of variables is that of one device all the same.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from keras.src.backend import Variable
from keras.src.utils.tracking import DotNotTrackScope
from numpy.typing import NDArray

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras.adapter.common.optimizers import is_slot


class Holder(Protocol):
    """What a slot asks for its value when the value is wanted outside of a step."""

    def read(self, slot: "Slot") -> NDArray[Any]:
        """The value that the slot has on its owner."""

    def write(self, slot: "Slot", value: Any) -> None:
        """Gives the slot a value on its owner."""

    def take(self, slot: "Slot", value: NDArray[Any] | None) -> None:
        """Gives the slot the master's value on its owner. value: None on the other ranks."""

    def asks_owners(self) -> bool:
        """Whether the owners answer this rank alone at the moment."""

    def in_step(self) -> bool:
        """Whether an optimizer makes a step, in which ranks assign to their own slots alone."""

    def meet_to_assign(self, slot: "Slot", value: NDArray[Any]) -> None:
        """Checks that all ranks assign this value to this slot."""


class Slot(Variable):  # type: ignore[misc]
    """A variable of an optimizer's state whose value one rank holds.

    Within a step it is a variable like any other on its owner, and an error elsewhere. Reading it as an array is collective.
    """

    _tnt_owner: int
    _tnt_number: int
    _tnt_holder: Holder

    @property
    def is_here(self) -> bool:
        """Whether this rank holds the value."""
        return self._tnt_owner == runtime.get_rank()

    @property
    def value(self) -> Any:
        """The tensor or variable with the value."""
        if self.is_here:
            return super().value
        if self._tnt_holder.asks_owners() and tf.executing_eagerly():
            return tf.convert_to_tensor(self.numpy())
        raise UnsupportedError(
            f"{self.path} is state of an optimizer with shard_optimizer=True, and rank {self._tnt_owner} alone holds it: read "
            "it by numpy() on all ranks at once, or train without shard_optimizer"
        )

    def numpy(self) -> NDArray[Any]:
        """The value as an array, on all ranks. Collective."""
        return self._tnt_holder.read(self)

    def own_value(self) -> NDArray[Any]:
        """The value on the rank that holds it."""
        value: NDArray[Any] = np.asarray(self._value.numpy())
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.numpy(), dtype)

    def assign(self, value: Any) -> Any:
        """Gives it this value on its owner. Outside of a step all ranks must call it, with the same value."""
        if tf.executing_eagerly() and not self._tnt_holder.in_step():
            if tuple(np.shape(value)) != tuple(self.shape):
                raise ValueError(f"{self.path} has shape {self.shape}: it cannot take a value of shape {np.shape(value)}")
            if self._tnt_holder.asks_owners():
                self._tnt_holder.write(self, value)
                return value
            self._tnt_holder.meet_to_assign(self, np.asarray(value, tf.as_dtype(self.dtype).as_numpy_dtype))
        return super().assign(value) if self.is_here else value

    def take(self, value: NDArray[Any] | None) -> None:
        """Gives it the value that the master has. Collective. value: None on the other ranks."""
        self._tnt_holder.take(self, value)

    def assign_here(self, value: Any) -> None:
        """Gives it this value on this rank, which is its owner."""
        super().assign(value)


class PlannedSlot(NamedTuple):
    """A variable that an optimizer makes when it is built."""

    variable: int | None
    """The index of the trained variable whose state it is; None: all ranks hold it."""
    shape: tuple[int, ...]
    bytes: int
    begins_as_variable: bool
    """Whether its first value is that of the trained variable."""
    place: tuple[str, int] | None
    """The optimizer's attribute that is a list with it, and its index there."""


def planned_slots(optimizer: Any, variables: Sequence[Any]) -> list[PlannedSlot]:
    """The variables that `build` would make for these, in its order. Nothing is allocated, and the optimizer is as before.

    Raises:
        UnsupportedError: its first state is computed from the trained variables.
    """
    made: list[Variable] = []
    references: dict[int, int] = {}  # the index of the trained variable, by the position of what was made for it
    copies: set[int] = set()
    number_of = {id(variable): number for number, variable in enumerate(variables)}
    reference: list[int | None] = [None]
    from_reference = optimizer.add_variable_from_reference

    def add_variable(shape: Any, initializer: Any = "zeros", dtype: Any = None, *_: Any, **named: Any) -> Variable:
        if reference[0] is not None:
            references[len(made)] = reference[0]
        made.append(Variable(_nothing, shape=shape, dtype=dtype, trainable=False, name=named.get("name")))
        return made[-1]

    def add_variable_from_reference(reference_variable: Any, *args: Any, **named: Any) -> Any:
        reference[0] = number_of.get(id(reference_variable))
        try:
            return from_reference(reference_variable, *args, **named)
        finally:
            reference[0] = None

    def assign(variable: Any, value: Any) -> None:
        position = next((i for i, one in enumerate(made) if one is variable), None)
        number = references.get(-1 if position is None else position)
        if position is None or number is None or not np.array_equal(np.asarray(value), np.asarray(variables[number])):
            raise UnsupportedError(
                f"shard_optimizer: {type(optimizer).__name__} computes its first state from the weights, in a way that is not "
                "known: train it without shard_optimizer"
            )
        copies.add(position)

    methods: dict[str, Callable[..., Any]] = {
        "add_variable": add_variable,
        "add_variable_from_reference": add_variable_from_reference,
        "assign": assign,
    }
    with tf.init_scope(), _leaving_as_before(optimizer), _with_methods(optimizer, methods), DotNotTrackScope():
        object.__setattr__(optimizer, "built", False)
        type(optimizer).build(optimizer, list(variables))
        places = _places_in_lists(optimizer, len(variables))
        sums = {id(v) for v in getattr(optimizer, "_accumulated_gradients", None) or ()}
    planned = []
    for position, variable in enumerate(made):
        place = places.get(id(variable))
        number = None if id(variable) in sums else references.get(position, None if place is None else place[1])
        size = int(np.prod(variable.shape, dtype=np.int64)) * tf.as_dtype(variable.dtype).size
        planned.append(PlannedSlot(number, tuple(variable.shape), size, position in copies, place))
    return planned


def _places_in_lists(optimizer: Any, length: int) -> dict[int, tuple[str, int]]:
    """Where variables stand in the optimizer's lists that have one for each trained variable, by id."""
    lists = [(name, value) for name, value in vars(optimizer).items() if isinstance(value, list) and len(value) == length]
    return {id(item): (name, i) for name, one in lists for i, item in enumerate(one) if isinstance(item, Variable)}


def _nothing(shape: Any, dtype: Any = None, **_: Any) -> tf.Tensor:
    return tf.zeros([0], dtype)


@contextmanager
def _leaving_as_before(optimizer: Any) -> Iterator[None]:
    """The attributes of the optimizer are the same again after this context."""
    before, indices = dict(vars(optimizer)), dict(optimizer._trainable_variables_indices)
    try:
        yield
    finally:
        for name in set(vars(optimizer)) - set(before):
            object.__delattr__(optimizer, name)
        for name, value in before.items():
            object.__setattr__(optimizer, name, value)
        optimizer._trainable_variables_indices.clear()
        optimizer._trainable_variables_indices.update(indices)


@contextmanager
def _with_methods(optimizer: Any, methods: dict[str, Callable[..., Any]]) -> Iterator[None]:
    before = {name: vars(optimizer).get(name) for name in methods}
    for name, method in methods.items():
        object.__setattr__(optimizer, name, method)
    try:
        yield
    finally:
        for name, method_before in before.items():
            if method_before is None:
                object.__delattr__(optimizer, name)
            else:
                object.__setattr__(optimizer, name, method_before)


def build_slots(optimizer: Any, variables: Sequence[Any], owners: Sequence[int | None], holder: Holder) -> list[Any]:
    """Builds the optimizer. Returns the variables that it makes.

    Args:
        owners: for each of them the rank that shall hold it; None: all ranks.
    """
    left, made = iter(owners), []
    add, assign_to = optimizer.add_variable, optimizer.assign

    def add_variable(shape: Any, initializer: Any = "zeros", *args: Any, **named: Any) -> Any:
        owner = next(left)
        is_here = owner is None or owner == runtime.get_rank()
        variable = add(shape, initializer if is_here else _nothing, *args, **named)
        made.append(variable if owner is None else _as_slot(variable, owner, holder))
        return made[-1]

    def assign(variable: Any, value: Any) -> None:
        if not is_slot(variable):
            assign_to(variable, value)
        elif variable.is_here:
            variable.assign_here(value)

    with tf.init_scope(), _with_methods(optimizer, {"add_variable": add_variable, "assign": assign}):
        type(optimizer).build(optimizer, list(variables))
    return made


def _as_slot(variable: Any, owner: int, holder: Holder) -> Slot:
    variable._tnt_owner, variable._tnt_holder = owner, holder
    variable.__class__ = Slot
    slot: Slot = variable
    return slot


def built_variables(optimizer: Any, planned: Sequence[PlannedSlot]) -> list[Any]:
    """The variables of a built optimizer that are the planned ones; None for one that is not where the plan says."""
    found = []
    for slot in planned:
        listed = [] if slot.place is None else getattr(optimizer, slot.place[0], [])
        found.append(listed[slot.place[1]] if slot.place is not None and slot.place[1] < len(listed) else None)
    return found


def share_out(variables: Sequence[Any], owners: Sequence[int | None], holder: Holder) -> None:
    """Makes slots of an optimizer's variables; owners as for `build_slots`. A rank forgets what the others hold."""
    for variable, owner in zip(variables, owners, strict=True):
        if owner is not None:
            slot = _as_slot(variable, owner, holder)
            if not slot.is_here:
                slot._value = tf.Variable(_nothing((), slot.dtype), trainable=False)


# ---------------------------------------------------------------------------------------------- updates of a part alone

_METHODS = (
    "_backend_update_step",
    "_apply_weight_decay",
    "_update_model_variables_moving_average",
    "_overwrite_model_variables_with_average_value",
)
_METHODS_OF_ALL = ("apply_gradients", "apply", "_backend_apply_gradients", "_clip_gradients", *_METHODS)


def unshardable_because(optimizer: Any) -> str | None:
    """Why no part of this optimizer's variables can be updated alone; None: nothing is known against it."""
    kind = type(optimizer)
    if any(base.__name__ == "MultiOptimizer" for base in kind.__mro__):
        return "it passes variables on to other optimizers"
    missing = [name for name in (*_METHODS, "finalize_variable_values") if not hasattr(kind, name)]
    if missing:
        return f"this version of Keras has no {missing[0]}"
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "keras":
            break
        own = [name for name in _METHODS_OF_ALL if name in vars(base)]
        if own:
            return f"it has {own[0]} of its own"
    return None


def own_updates(optimizer: Any, is_own: Callable[[int], bool], note: Callable[[], None]) -> list[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) by which the optimizer changes a part of its variables.

    Args:
        is_own: whether a variable is to be changed, by its index.
        note: is called when weights are changed.
    """
    update, decay = optimizer._backend_update_step, optimizer._apply_weight_decay
    average = optimizer._update_model_variables_moving_average
    overwrite = optimizer._overwrite_model_variables_with_average_value

    def is_here(variable: Any) -> bool:
        return is_own(optimizer._get_variable_index(variable))

    def update_own(grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        note()
        pairs = [(g, v) for g, v in zip(grads, trainable_variables, strict=True) if is_here(v)]
        return update([g for g, _ in pairs], [v for _, v in pairs], learning_rate)

    def decay_own(variables: Any) -> Any:
        return decay([v for v in variables if is_here(v)])

    @contextmanager
    def own_averages(variables: Any) -> Iterator[list[Any]]:
        averages = optimizer._model_variables_moving_average
        own = [(v, a) for v, a in zip(variables, averages, strict=True) if is_here(v)]
        object.__setattr__(optimizer, "_model_variables_moving_average", [a for _, a in own])
        try:
            yield [v for v, _ in own]
        finally:
            object.__setattr__(optimizer, "_model_variables_moving_average", averages)

    def average_own(trainable_variables: Any) -> Any:
        if optimizer.use_ema:
            with own_averages(trainable_variables) as own:
                average(own)

    def overwrite_own(trainable_variables: Any) -> Any:
        note()
        with own_averages(trainable_variables) as own:
            overwrite(own)

    return [(optimizer, name, f) for name, f in zip(_METHODS, (update_own, decay_own, average_own, overwrite_own), strict=True)]


def has_averages(optimizer: Any) -> bool:
    """Whether the optimizer keeps moving averages of the weights, which are given to the model when `fit` ends."""
    return bool(optimizer.use_ema)


def overwrites_weights(optimizer: Any) -> bool:
    """Whether the optimizer now and then gives the model the averages of its weights, in whatever step."""
    return bool(optimizer.use_ema and optimizer.ema_overwrite_frequency)
