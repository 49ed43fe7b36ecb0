"""Whether the ranks' weights are alike before a file is written, which has the master's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter
from tarantella.keras.reduction import weights


class Likeness:
    """Remembers this rank's weights as they were when all ranks had the same."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._sample: bytes | None = None  # None: not known
        if model.built:
            self.note()

    def note(self) -> None:
        """The ranks have the same weights now."""
        if runtime.get_size() > 1:
            self._sample = weights.sample(adapter.trainable_variables(self._model))

    def forget(self) -> None:
        """The weights are others now, in a way that is right."""
        self._sample = None

    def check(self) -> None:
        """Refuses to lose what another rank than the master has trained by itself. Collective.

        Raises:
            MismatchError: ranks differ, and one other than the master has changed its weights since they were alike.
        """
        variables = adapter.trainable_variables(self._model) if self._model.built else []
        differing = weights.differing(variables)
        if not differing:
            return
        is_known = self._sample is not None
        is_changed = is_known and self._sample != weights.sample(variables)
        flags = collectives.all_gather(np.array([is_known, is_changed]))
        changed = [rank for rank, flag in enumerate(flags) if rank > 0 and flag[1]]
        text = (
            f"the ranks hold different weights of {self._model.name!r}, and a file has the master's; the first that differs is "
            f"{adapter.path(differing[0])}"
        )
        if changed:
            raise MismatchError(
                f"{text}, which rank {changed[0]} has changed by itself. A loop that trains it without an optimizer reduces "
                "nothing: reduce its gradients by tnt.all_reduce or tnt.DistributedGradientTape, or let all ranks take the "
                "master's weights by tnt.broadcast_variables(model.variables)"
            )
        if not flags[:, 0].all():
            runtime.logger.warning("%s", text)
