"""The messages of trials: what could not be compared, and what couples the samples of a batch."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tarantella.keras.step.trial import Answer, Kind

WAYS_OUT_OF_LOSS = (
    "Ranks cannot compute such a loss from their own samples. Without reproducible, tnt.Model(model, across_ranks=True) "
    "computes it on each rank from the outputs of all ranks, as tnt.all_gather inside the loss does; with fit(..., "
    "tnt_distribute_dataset=False) each rank has batches of its own; tnt.Model(model, accept_approximate=True) trains the mean "
    "of the ranks' losses"
)
WAYS_OUT_OF_STEP = (
    "Ranks cannot compute it from their own samples. Let the loss be a mean or a sum over samples, or bring the samples of all "
    "ranks together by tnt.all_gather inside the step (not with reproducible); with fit(..., tnt_distribute_dataset=False) "
    "each rank has batches of its own; tnt.Model(model, accept_approximate=True) trains with the mean of the ranks' gradients"
)


class Verdict:
    """Refuses or accepts losses or a step that couple samples.

    Args:
        ways_out: the user's alternatives.
        instead: the behaviour if the user accepts coupled samples.
    """

    def __init__(self, ways_out: str, instead: str) -> None:
        self._ways_out = ways_out
        self._instead = instead
        self._warned = False

    def refuse(self, said: Sequence[str], answer: Answer) -> None:
        """Refuses coupled samples, or warns once if the user accepts them.

        Args:
            said: of each loss, or of the step, what was compared.

        Raises:
            UnsupportedError: the user does not accept it.
        """
        text = "; ".join(said)
        if not answer.accept_approximate:
            raise UnsupportedError(f"{text}. {self._ways_out}")
        if not self._warned:
            self._warned = True
            runtime.logger.warning("%s. accept_approximate=True: %s instead", text, self._instead)


def say_not_compared(what: str, reason: object) -> None:
    """Says at INFO that there was no comparison, and what that means."""
    runtime.logger.info(
        "%s could not be compared on a batch and on its parts: %s. On several ranks it is right if its loss is a mean over "
        "samples",
        what,
        reason,
    )


def require_same(trial: str, kinds: Iterable[Kind]) -> None:
    """Checks that all ranks found the same. Collective. trial: such as ``"the trial of train_step"``.

    Raises:
        MismatchError: a rank found something else.
    """
    text = " ".join(kind.name for kind in kinds).encode()
    collectives.require_same(f"{trial} on made-up samples", **{"what it found": zlib.crc32(text)})
