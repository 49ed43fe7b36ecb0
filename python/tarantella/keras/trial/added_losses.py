"""How the losses that layers add by `add_loss`, in Keras' own steps, are made of those of a batch's parts.

A sum over samples is scaled in each step (`tarantella.keras.step.added_losses`). One that couples samples is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarantella.keras.trial.comparison import TOLERANCE, Kind, NotComparable, compared
from tarantella.keras.trial.compiled_losses import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tarantella.keras.trial.parts import Parts
    from tarantella.keras.trial.run import Record


def kinds(parts: Parts, whole: Record, of_parts: Sequence[Record]) -> dict[tuple[int, int], tuple[Kind, str]]:
    """The kind of each loss that a layer added, by the layer's id and the number of its call, and what was compared."""
    if any(part.added.keys() != whole.added.keys() for part in of_parts):
        raise NotComparable("not as many losses are added for any samples")
    return {
        key: (compared(value, values, parts.weights, tolerance=TOLERANCE), numbers(parts, value, values))
        for key, value in whole.added.items()
        for values in [[part.added[key] for part in of_parts]]
    }
