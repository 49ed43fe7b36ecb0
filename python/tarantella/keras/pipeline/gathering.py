"""Bringing a pipeline's weights and optimizer together on one rank: to write a file, or to read one and share it out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, files
from tarantella.keras.checkpoint import state
from tarantella.keras.checkpoint.state import Stored
from tarantella.keras.pipeline.weights import Holdings, by_key, whole_optimizer
from tarantella.keras.reduction.weights import state_keys
from tarantella.keras.step.patch import Attribute

_END, _GATHER, _READ = range(3)
_WRITERS = ("save", "save_weights", "export")


class Gathering:
    """Gathers what the ranks hold of a model.

    As a rule all ranks ask for it together. Where a callback of the master's works alone, the others answer it (`served`).

    Args:
        model: the Keras model.
        ranks: those whose optimizers have the states of all variables.
    """

    def __init__(self, model: Any, holdings: Holdings, ranks: Sequence[int]) -> None:
        self._model, self._holdings, self._ranks = model, holdings, ranks
        self._is_asking = False  # whether this rank is the master and works alone

    @contextmanager
    def together(self, here: bool) -> Iterator[None]:
        """In this context the model and its optimizer are whole on the ranks where `here` is true. Collective."""
        model, own = self._model, adapter.optimizer_of(self._model)
        if not self._holdings.is_released:
            yield
            return
        with self._holdings.together(here):
            if own is not None and own.built:
                model.optimizer = whole_optimizer(own, adapter.trainable_variables(model), here, self._ranks)
            try:
                yield
            finally:
                model.optimizer = own

    def write(self, filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool) -> None:
        """Writes a file of the whole model, as `files.write` does. Collective."""
        with self.together(on_all_ranks or runtime.is_master_rank()):
            files.write(filepath, write_to, on_all_ranks)

    @contextmanager
    def served(self) -> Iterator[None]:
        """In this context the master may write and read files of the whole model. The others answer, until it leaves."""
        if not runtime.is_master_rank():
            while (wanted := self._announced()) != _END:
                with self.together(here=False):
                    pass
                if wanted == _READ and self._announced() == _READ:
                    restore(self._model, self._holdings, None, common_seed=False)
            yield
            return
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False
            self._announced(_END)

    def _announced(self, what: int = _END) -> int:
        """What the master says, on all ranks."""
        return int(collectives.broadcast(np.array([what], np.int64), 0)[0])

    def _read(self, load: Callable[[], None]) -> None:
        """Reads a file of the whole model on the master, and gives each rank its part. The others answer (`served`)."""
        self._announced(_READ)
        failure, stored = None, None
        with self.together(here=True):
            try:
                load()
                stored = state.collect(self._model, per_rank=False)
            except Exception as error:  # the callback may know another file
                failure = error
        self._announced(_END if failure else _READ)
        if failure:
            raise failure
        restore(self._model, self._holdings, stored, common_seed=False)

    # ---------------------------------------------------------------------------- methods of the model in a callback

    def methods(self) -> list[Attribute]:
        """Replacements of the Keras model's methods that need all weights, for callbacks of `fit`."""
        model = self._model
        return [
            *((model, name, self._writing(name, getattr(model, name))) for name in _WRITERS),
            (model, "set_weights", self.set_weights),
            (model, "load_weights", self._loading(model.load_weights)),
        ]

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_weights(*args: Any, **kwargs: Any) -> None:
            if not self._is_asking:
                raise UnsupportedError(
                    "a callback loads weights on all ranks, of which each holds some stages only: give it to fit as "
                    "tnt.callbacks.Callback(callback), so that the master alone reads the file"
                )
            self._read(lambda: original(*args, **kwargs))

        return load_weights

    def _writing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(filepath: Any, *args: Any, **kwargs: Any) -> None:
            if not self._is_asking:
                collectives.meet(f"{name} of the model in a callback")
                self.write(filepath, lambda path: original(path, *args, **kwargs), on_all_ranks=False)
                return
            self._announced(_GATHER)
            with self.together(here=True):
                original(filepath, *args, **kwargs)

        return write

    def set_weights(self, weights: Any) -> None:
        """Gives the variables that this rank holds their values in a list of all; others may be empty arrays there.

        Raises:
            ValueError: the list has another length, or a value another shape.
        """
        variables = list(self._model.weights)
        if len(weights) != len(variables):
            raise ValueError(f"the model has {len(variables)} weights, and set_weights was given {len(weights)}")
        for variable, value in zip(variables, weights, strict=True):
            if self._holdings.is_here(variable):
                variable.assign(value)


OPTIMIZER = "optimizer"  # the group of its variables


def restore(model: Any, holdings: Holdings, stored: Stored | None, common_seed: bool) -> None:
    """Gives the ranks the values of the variables that they hold, one by one. Collective.

    Args:
        model: the Keras model.
        stored: None but on rank 0.
        common_seed: whether the state of Keras' common random generator was stored.
    """
    for name, variables in state.groups_of(model, common_seed).items():
        if name == OPTIMIZER:
            _restore_optimizer(adapter.optimizer_of(model), stored)
            continue
        for place, variable in enumerate(variables):
            inner = adapter.unwrap(variable)
            empty = np.zeros(tuple(variable.shape), inner.dtype.as_numpy_dtype)
            value = collectives.broadcast(empty if stored is None else np.asarray(stored[name][place]["value"]), 0)
            if holdings.is_here(variable):
                inner.assign(value)


def _restore_optimizer(optimizer: Any, stored: Stored | None) -> None:
    own = by_key(optimizer)
    items = [] if stored is None else stored[OPTIMIZER]
    for place, key in enumerate(collectives.broadcast_object(state_keys([item["path"] for item in items]))):
        value = collectives.broadcast_object(None if stored is None else np.asarray(items[place]["value"]))
        if key in own:
            adapter.unwrap(own[key]).assign(value)
