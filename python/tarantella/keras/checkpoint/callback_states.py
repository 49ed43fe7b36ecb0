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
    return {name: state for name, callback in named(callbacks) if (state := state_of(callback))}


def state_of(callback: Any) -> dict[str, Any]:
    """The state of one callback. Raises any exception of a user's `get_state`."""
    state = remembered(callback)
    if isinstance(callback, _CSV) and os.path.exists(callback.filename):
        file = getattr(callback, "csv_file", None)
        if file is not None and not getattr(file, "closed", False):
            file.flush()
        state["size"] = os.path.getsize(callback.filename)
    if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
        state["own"] = callback.get_state()
    return state


def remembered(callback: Any) -> dict[str, Any]:
    """Of the state of one callback, what Keras has put into attributes."""
    state: dict[str, Any] = {}
    for kind, names in _STATES:
        if isinstance(callback, kind):
            found = {name: vars(callback)[name] for name in names if name in vars(callback)}
            state["remembered"] = {name: adapter.with_arrays(value) for name, value in found.items()}
    return state


def prepare(callbacks: Sequence[Any], stored: dict[str, Any]) -> None:
    """Cuts logs after the last line that the restarted training will not write again, and has them appended to."""
    for name, callback in named(callbacks):
        cut(callback, stored.get(name, {}))


def cut(callback: Any, state: dict[str, Any]) -> None:
    """Cuts the log of a callback to what was in it when the callback had this state, and has it appended to."""
    if not isinstance(callback, _CSV) or "size" not in state:
        return
    callback.append = True
    if os.path.exists(callback.filename) and os.path.getsize(callback.filename) > state["size"]:
        os.truncate(callback.filename, state["size"])
        callback.append_header = state["size"] == 0


def restore(callbacks: Sequence[Any], stored: dict[str, Any]) -> None:
    """Gives each callback its state again."""
    for name, callback in named(callbacks):
        give(callback, stored.get(name, {}))


def give(callback: Any, state: dict[str, Any]) -> None:
    """Gives one callback this state."""
    adapter.remember(callback, state.get("remembered", {}))
    if "own" in state and placement.runs_here(callback):
        callback.set_state(state["own"])


def named(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each callback, with its class and number as its name."""
    numbers: dict[str, int] = {}
    for callback in callbacks:
        kind = type(callback).__name__
        numbers[kind] = numbers.get(kind, 0) + 1
        yield f"{kind} {numbers[kind]}", callback
