"""`tnt.elastic`: training loops of one's own that go on when ranks are lost, and that newcomers join."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import generations, recovery
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.adapter.random_operations import trace_apart
from tarantella.keras.reduction import ops
from tarantella.keras.reduction.collectives import broadcast_variables

__all__ = ["State", "run"]


class Variables(recovery.Values):
    """Variables of TensorFlow or Keras, and values of a script.

    Args:
        model: whose variables belong to it; None: none do.
        optimizer: the same. It is built if the model is.
        variables: others.
        values: as of `recovery.Values`.
    """

    _arrays: Sequence[Any] = ()

    def __init__(self, model: Any, optimizer: Any, variables: Sequence[Any], **values: Any) -> None:
        self.model, self.optimizer = model, optimizer
        self._others = list(variables)
        super().__init__(**values)
        self.save()

    def tracked(self) -> list[Any]:
        """All of its variables, in an order that is the same on all ranks."""
        found = [] if self.model is None else adapter.variables(self.model)
        if self.optimizer is not None:
            if self.model is not None and self.model.built:  # its first step would make the optimizer's variables
                adapter.build_optimizer(self.optimizer, self.model.trainable_variables)
            found += adapter.state_of_optimizer(self.optimizer)
        return list({id(v): v for v in (*found, *self._others)}.values())

    def is_whole(self) -> bool:
        inner = None if self.optimizer is None else adapter.accumulating(self.optimizer)
        return inner is None or not inner.built or not adapter.between_updates(inner)

    def save(self) -> None:
        self._arrays = [np.array(adapter.unwrap(variable).numpy()) for variable in self.tracked()]
        super().save()

    def restore(self) -> None:
        self.assign(self._arrays)
        super().restore()

    def sync(self, root: int = 0) -> None:
        broadcast_variables(self.tracked(), root)
        super().sync(root)

    def described(self) -> Any:
        variables = map(adapter.unwrap, self.tracked())
        return [super().described(), [[list(v.shape), tf.as_dtype(v.dtype).name] for v in variables]]

    def assign(self, arrays: Sequence[Any]) -> None:
        """Gives all of its variables these values."""
        variables = self.tracked()
        if [v.shape for v in variables] != [tf.TensorShape(a.shape) for a in arrays]:
            raise ValueError(
                f"the commit has {len(arrays)} variables, the model and its optimizer have {len(variables)}, or their shapes "
                "differ: build the model before the state, and do not change it"
            )
        for variable, array in zip(variables, arrays, strict=True):
            adapter.unwrap(variable).assign(array)


class State(Variables):
    """What a training loop changes, and continues from when ranks are lost.

    Args:
        model: a Keras model, built. All of its variables belong to the state.
        optimizer: one of Keras. So do its variables.
        variables: others of Keras or TensorFlow, as of metrics.
        values: numbers, texts, arrays, and lists, tuples and dicts of them: attributes of the state, such as ``epoch=0``.

    Raises:
        UnsupportedError: the model is not built.
        ValueError: a value has a name that the state needs.

    Examples:
        >>> state = tnt.elastic.State(model, optimizer, epoch=0)
        >>> state.epoch += 1
        >>> state.commit()
    """

    def __init__(self, model: Any = None, optimizer: Any = None, variables: Sequence[Any] = (), **values: Any) -> None:
        if model is not None and not model.built:
            raise UnsupportedError(f"tnt.elastic.State: {model.name} has no variables yet: build it, or call it once, before")
        if taken := sorted(name for name in values if hasattr(State, name)):
            raise ValueError(f"tnt.elastic.State: a value cannot have the name {taken[0]!r}, which means something else here")
        super().__init__(model, optimizer, variables, **values)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(self, name) and not self.is_value(name):
            raise AttributeError(f"state.{name} would be in no commit: give {name}=... to tnt.elastic.State")
        super().__setattr__(name, value)


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that trains: ``function(state, ...)``. Calls of it are collective.

    The function begins with rank 0's state on all ranks. In a job of ``tarantella --elastic`` it is called again whenever ranks
    were lost, or a new one joins: with the last commit, on the ranks that there are then. So it continues from what the state
    says, and whatever depends on `tnt.get_rank` and `tnt.get_size`, such as the data of this rank, is made in it. Each
    `tf.function` is traced again. In other jobs it is called once, and a lost rank ends the job.

    Examples:
        >>> @tnt.elastic.run
        ... def train(state):
        ...     while state.epoch < 10:
        ...         for x, y in batches_of(state.epoch, tnt.get_rank(), tnt.get_size()):
        ...             step(x, y)
        ...         state.epoch += 1
        ...         state.commit()
        >>> train(tnt.elastic.State(model, optimizer, epoch=0))
    """

    @functools.wraps(function)
    def call(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError(f"the first argument of {function.__name__} is a tnt.elastic.State, not a {type(state).__name__}")
        trace_by_generation()
        with ops.translated_errors():
            return recovery.run(state, lambda: function(state, *args, **kwargs))

    return call


@functools.cache
def trace_by_generation() -> None:
    """From now on each `tf.function` is traced again in a new generation: a trace has the communicators of its own. Once."""
    first = generations.joined()
    if generations.is_elastic():
        trace_apart(lambda: generations.joined() - first or None)
