"""Whether the ranks' weights and state are alike where all take the master's: in a file, or when a call begins."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tarantella import collectives, generations, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter
from tarantella.keras.reduction import weights
from tarantella.keras.step import accumulation, moving_statistics


class Likeness:
    """Remembers this rank's weights as they were when all ranks had the same.

    Attributes:
        is_started: whether all ranks have been given rank 0's weights and optimizer state, for training.
    """

    def __init__(self, model: Any) -> None:
        self.is_started = False
        self._model = model
        self._has_local_state = False  # whether single steps left on each rank what the end of an epoch would bring together
        self._sample: bytes | None = None  # None: not known
        self._other_than_masters: int | None = None  # this rank, if it has come with other weights than the master
        if model.built:
            self.note()

    def note(self) -> None:
        """The ranks have the same weights now."""
        if runtime.get_size() > 1:
            self._sample = weights.sample(self._variables())

    def forget(self) -> None:
        """The weights are others now, in a way that is right."""
        self._sample = None

    def forget_start(self) -> None:
        """The ranks are to be given rank 0's weights and optimizer state before the next step."""
        self.is_started = False

    def before_handing_out(self) -> None:
        """The master is to give all ranks its weights, of which nobody knows if it is lost before. Collective."""
        if generations.is_elastic():
            samples = collectives.all_gather(np.frombuffer(self._sample_of_all(), np.uint8))
            if (samples[0] != samples[runtime.get_rank()]).any():
                self._other_than_masters = runtime.get_rank()

    @contextmanager
    def handing_out(self) -> Iterator[None]:
        """The master gives all ranks its weights in this context. Warns if it is another one by now, and gives other ones."""
        rank, self._other_than_masters = self._other_than_masters, None
        own = None if rank is None else self._sample_of_all()
        yield
        if own is not None and runtime.is_master_rank() and own == self._sample_of_all():
            runtime.logger.warning(
                "rank 0 was lost before it gave its weights of %r to the others, which had other ones: all go on with those "
                "that rank %d had. Load weights on all ranks: what rank 0 alone has read is lost with it",
                self._model.name,
                rank,
            )

    def _sample_of_all(self) -> bytes:
        return weights.sample(adapter.weights(self._model) if self._model.built else [])

    def begin_single_step(self) -> None:
        """A step of `train_on_batch` is to change weights and state."""
        self._has_local_state = True
        self.forget()

    def end_single_steps(self, bring_together: bool = True) -> None:
        """Brings together what single steps left on each rank, as the end of an epoch does, or leaves it. Collective."""
        if self._has_local_state and bring_together:
            moving_statistics.average(self._model)
            accumulation.collect_on_rank_0(self._model)
        self._has_local_state = False

    def check(self, call: str) -> None:
        """Refuses to lose what another rank than the master has trained by itself. Collective.

        It costs a hash of some numbers of each variable, and of all of them where these have changed.

        Args:
            call: what takes the master's weights.

        Raises:
            MismatchError: ranks differ, and one other than the master has changed its weights since they were alike.
        """
        text = self._lost(call)
        if text:
            raise MismatchError(text)

    def warn(self, call: str) -> None:
        """As `check`, but says it in a warning: a script may have given each rank new random weights. Collective."""
        text = self._lost(call)
        if text:
            runtime.logger.warning("%s", text)

    def check_file(self) -> None:
        """As `check`, before a file is written, and warns if ranks differ for another reason. It hashes all of them."""
        self.check("a file")
        are_known = collectives.all_gather(np.array(self._sample is not None)).all()
        differing = [] if are_known else weights.differing(self._variables())
        if differing:
            runtime.logger.warning("%s", self._difference("a file", differing[0]))

    def _lost(self, call: str) -> str:
        """What another rank than the master would lose; empty if nothing. Collective."""
        is_changed = self._sample is not None and self._sample != weights.sample(self._variables())
        changed = np.flatnonzero(collectives.all_gather(np.array(is_changed))[1:])
        differing = weights.differing(self._variables()) if changed.size else []
        if not differing:
            return ""
        return (
            f"{self._difference(call, differing[0])}, which rank {changed[0] + 1} has changed by itself. A loop that trains it "
            "without an optimizer reduces nothing: reduce its gradients by tnt.all_reduce or tnt.DistributedGradientTape, or "
            "let all ranks take the master's weights by tnt.broadcast_variables(model.variables)"
        )

    def _difference(self, call: str, first: Any) -> str:
        return (
            f"the ranks hold different weights of {self._model.name!r}, and {call} takes the master's; the first that differs "
            f"is {adapter.path(first)}"
        )

    def _variables(self) -> list[Any]:
        return adapter.trainable_variables(self._model) if self._model.built else []
