"""What a rank can hash of a model's variables, for `fingerprint`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.reduction.weights import state_keys


class View:
    """All of it: every rank holds the whole model."""

    def is_here(self, variable: Any) -> bool:
        """Whether this rank has the variable's value."""
        return True

    def together(self, values: Sequence[int | None]) -> list[int | None]:
        """The hashes of all ranks, None where no rank has one."""
        return list(values)

    def state(self, model: Any) -> list[tuple[str, Any]]:
        """The paths of the optimizers' variables, and the variables: in the same order in any run of the script.

        A variable whose value this rank does not have is None.
        """
        variables = adapter.optimizer_variables(model)
        paths = [adapter.path(v) for v in variables]
        ordered = sorted(zip(state_keys(paths), range(len(paths)), strict=True))
        return [(paths[place], variables[place]) for _, place in ordered]
