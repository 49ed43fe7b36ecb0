"""The attributes of layers, optimizers and losses, where those who wrote them may keep variables."""

from collections.abc import Sequence
from typing import Any

from tarantella.keras.adapter.common.optimizers import is_slot
from tarantella.keras.adapter.common.python_state import attributes_of
from tarantella.keras.adapter.front_end import LEGACY

if LEGACY:
    from tarantella.keras.adapter.keras2.models import is_variable
else:
    from tarantella.keras.adapter.keras3.models import is_variable


def variables_in(objects: Sequence[Any]) -> list[Any]:
    """The variables that are attributes of these objects, also in lists and dicts, or that their attributes hold.

    Without those that another rank may hold: no trial changes them.
    """
    found: dict[int, Any] = {}
    for value in attributes_of(objects):
        held = [value] if is_variable(value) else getattr(value, "variables", None)
        if isinstance(held, (list, tuple)):
            found.update((id(v), v) for v in held if is_variable(v) and not is_slot(v))
    return list(found.values())
