"""Hashes of a pipeline's variables, for `tarantella verify`: ranks hash what they hold, and exchange the hashes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.pipeline.weights import Holdings, by_key
from tarantella.keras.reproducible.fingerprint import View


class PipelineView(View):
    """A model of which each rank holds some stages, and the optimizer's state for these. Its methods are collective.

    Args:
        ranks: those whose optimizers have the states of all variables.
    """

    def __init__(self, holdings: Holdings, ranks: Sequence[int]) -> None:
        self._holdings, self._ranks = holdings, ranks

    def is_here(self, variable: Any) -> bool:
        return self._holdings.is_here(variable)

    def together(self, values: Sequence[int | None]) -> list[int | None]:
        """The hash of the first rank that has one, for each."""
        own = np.array([[value is not None, value or 0] for value in values], np.int64).reshape(-1, 2)
        gathered = collectives.all_gather(own)
        first = gathered[:, :, 0].argmax(axis=0)
        chosen = gathered[first, np.arange(len(values))].tolist()
        return [value if is_there else None for is_there, value in chosen]

    def state(self, model: Any) -> list[tuple[str, Any]]:
        own = by_key(adapter.optimizer_of(model))
        paths: dict[str, str] = {}
        for rank in self._ranks:
            mine = {key: adapter.path(v) for key, v in own.items()} if rank == runtime.get_rank() else None
            for key, path in collectives.broadcast_object(mine, rank).items():
                paths.setdefault(key, path)
        return [(paths[key], own.get(key)) for key in sorted(paths)]
