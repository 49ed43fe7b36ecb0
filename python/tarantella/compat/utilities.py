"""`tnt.keras.utilities`: a module of the predecessor's, whose functions were parts of its pipelines. None of them is left."""

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tnt.keras.utilities has no {name!r}: the predecessor's helpers there served its pipelines, which this version does "
        "not have. tnt.Model needs none of them"
    )
