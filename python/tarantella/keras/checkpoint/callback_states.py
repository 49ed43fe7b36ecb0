"""The state of callbacks in a checkpoint.

Keras' own callbacks have attributes that last from epoch to epoch. A callback of the user's may have ``get_state()`` and
``set_state(state)``; a state is numbers, strings and arrays, in lists and dicts.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement

_STATES = adapter.callback_states()
_CSV: Any = adapter.callback_kinds("CSVLogger")


def collect(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The state of each callback that has one, by its class and number.

    Raises:
        Any exception of a user's `get_state`.
    """
    return {name: state for name, callback in _named(callbacks) if (state := _state_of(callback))}


def _state_of(callback: Any) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for kind, names in _STATES:
        if isinstance(callback, kind):
            found = {name: vars(callback)[name] for name in names if name in vars(callback)}
            state["remembered"] = {name: adapter.with_arrays(value) for name, value in found.items()}
    if isinstance(callback, _CSV) and os.path.exists(callback.filename):
        if callback.csv_file is not None and not getattr(callback.csv_file, "closed", False):
            callback.csv_file.flush()
        state["size"] = os.path.getsize(callback.filename)
    if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
        state["own"] = callback.get_state()
    return state


def prepare(callbacks: Sequence[Any], stored: dict[str, Any]) -> None:
    """Cuts logs after the last line that the restarted training will not write again, and has them appended to."""
    for name, callback in _named(callbacks):
        if isinstance(callback, _CSV) and "size" in stored.get(name, {}):
            callback.append = True
            if os.path.exists(callback.filename) and os.path.getsize(callback.filename) > stored[name]["size"]:
                os.truncate(callback.filename, stored[name]["size"])


def restore(callbacks: Sequence[Any], stored: dict[str, Any]) -> None:
    """Gives each callback its state again."""
    for name, callback in _named(callbacks):
        state = stored.get(name, {})
        adapter.remember(callback, state.get("remembered", {}))
        if "own" in state and placement.runs_here(callback):
            callback.set_state(state["own"])


def _named(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    numbers: dict[str, int] = {}
    for callback in callbacks:
        kind = type(callback).__name__
        numbers[kind] = numbers.get(kind, 0) + 1
        yield f"{kind} {numbers[kind]}", callback
