"""`TNT_AUTOTUNE`: the fusion threshold is chosen by trying a few in the first steps of training, which count as any others.

Each threshold has a plan and a traced step of its own. They take turns step by step, so that whatever disturbs the machine
disturbs all of them alike, and the one with the shortest median step is kept. Which bucket a gradient lies in changes no bit.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import collectives, runtime, settings
from tarantella.errors import MismatchError
from tarantella.keras import adapter
from tarantella.keras.reduction import autotune_cache, gradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tarantella.keras.step.hooks import StepHooks

ROUNDS = 7  # turns that count of each threshold
FACTORS = (1.0, 1 / 4, 4.0, math.inf)  # the thresholds tried, in those that the formula gives; the first is traced already
MARGIN = 0.02  # the formula's stays unless another one's step is shorter by more than this part


class Turns:
    """Whose turn it is among n candidates, and what their turns have taken."""

    def __init__(self, n: int) -> None:
        warm_up = [(i, False) for i in range(1, n)]  # their first step is traced
        # each round begins with another one: an epoch's first step, which is slow, must not always be the same one's
        rounds = [((first + i) % n, True) for first in range(ROUNDS) for i in range(n)]
        self._turns = [*warm_up, *rounds]
        self._n_done = 0
        self._seconds: list[list[float]] = [[] for _ in range(n)]

    @property
    def current(self) -> int:
        """Whose turn it is."""
        return self._turns[self._n_done][0]

    @property
    def finished(self) -> bool:
        """Whether all turns were taken."""
        return self._n_done == len(self._turns)

    def taken(self, seconds: float) -> None:
        """The current turn is over."""
        candidate, counts = self._turns[self._n_done]
        if counts:
            self._seconds[candidate].append(seconds)
        self._n_done += 1

    def medians(self) -> list[float]:
        """Seconds of each candidate's turn."""
        return [statistics.median(seconds) for seconds in self._seconds]

    def __str__(self) -> str:
        return f"{self._n_done} of {len(self._turns)} turns"


def best(seconds: Sequence[float]) -> int:
    """The candidate with the shortest step; the first one unless another is clearly better."""
    shortest = min(range(len(seconds)), key=lambda i: seconds[i])
    return shortest if seconds[shortest] < seconds[0] * (1 - MARGIN) else 0


class Autotune(adapter.Callback):
    """Tries thresholds while `fit` trains, over several calls of `fit` if one has too few steps. Collective in all it does."""

    def __init__(self, hooks: StepHooks, key: dict[str, Any]) -> None:
        super().__init__()
        self._hooks = hooks
        self._key = key
        self._thresholds: list[float | None] = []
        self._functions: dict[int, Any] = {}
        self._turns: Turns | None = None
        self._in_turn: list[float] = []
        self._begin = 0.0
        self._distributed = hooks.distributed
        self.finished = False

    # Keras calls these

    def on_train_begin(self, logs: Any = None) -> None:
        self._in_turn.clear()
        if self._distributed != self._hooks.distributed:  # other steps than those that were traced
            self._distributed = self._hooks.distributed
            self._functions.clear()
        if self._turns is not None and not self.finished:
            self._use(self._turns.current)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        seconds = time.perf_counter() - self._begin
        if self.finished:
            return
        if self._turns is None:
            if not self._hooks.awaits_reduction():
                self._start()
            return
        self._in_turn.append(seconds)
        if len(self._in_turn) < adapter.steps_of_update(self.model.optimizer):
            return
        self._turns.taken(sum(self._in_turn))
        self._in_turn.clear()
        if self._turns.finished:
            self._choose(self._turns.medians())
        else:
            self._use(self._turns.current)

    def on_train_end(self, logs: Any = None) -> None:
        if self.finished:
            return
        done = "before it began" if self._turns is None else f"after {self._turns}"
        runtime.logger.warning("TNT_AUTOTUNE: fit ended %s: the fusion threshold stays as it was, the next fit goes on", done)
        if self._turns is not None:
            self._use(0)

    # the steps of the choice

    def _start(self) -> None:
        random = self._hooks.random_operations
        if collectives.all_reduce(len(random), op="max") > 0:
            self._end("the step draws random numbers by %s, and would draw others if it were traced again", ", ".join(random))
            return
        self._thresholds, plans = [None], [self._hooks.buckets()]
        if not plans[0]:
            self._end("no gradient lies in a bucket")
            return
        usual = float(self._hooks.threshold_in_use())
        for threshold in (usual * factor for factor in FACTORS[1:]):
            threshold = math.floor(threshold) if math.isfinite(threshold) else threshold
            runtime.logger.info("TNT_AUTOTUNE: the plan with fusion threshold %s:", shown(threshold))
            self._hooks.add_plan(threshold)
            if self._hooks.buckets(threshold) in plans:
                self._hooks.drop_plan(threshold)
            else:
                self._thresholds.append(threshold)
                plans.append(self._hooks.buckets(threshold))
        if len(self._thresholds) == 1:
            self._end("every fusion threshold gives the same plan")
            return
        self._turns = Turns(len(self._thresholds))
        self._functions = {0: self.model.train_function}
        self._use(self._turns.current)

    def _end(self, why: str, *args: Any) -> None:
        runtime.logger.info(f"TNT_AUTOTUNE: nothing was tried: {why}", *args)
        self.finished = True

    def _use(self, candidate: int) -> None:
        """The next step is this one's."""
        self._hooks.fusion_threshold = self._thresholds[candidate]
        if candidate not in self._functions:
            self._functions[candidate] = adapter.new_train_function(self.model)
        self.model.train_function = self._functions[candidate]

    def _choose(self, medians: list[float]) -> None:
        seconds = collectives.all_reduce(np.array(medians), op="max")
        chosen = best(seconds)
        bytes_of = [float(self._hooks.threshold_in_use(t)) if t is None else t for t in self._thresholds]
        step_ms = {shown(b): round(float(s) * 1e3, 3) for b, s in zip(bytes_of, seconds, strict=True)}
        self._use(chosen)
        for candidate, threshold in enumerate(self._thresholds):
            if candidate != chosen:
                self._hooks.drop_plan(threshold)
        self._functions.clear()
        self.finished = True
        if runtime.is_master_rank():
            file = autotune_cache.keep(self._key, bytes_of[chosen], step_ms)
            times = ", ".join(f"{threshold}: {ms:g} ms" for threshold, ms in step_ms.items())
            kept = "" if file is None else f"; kept in {file}"
            runtime.logger.info("TNT_AUTOTUNE: fusion threshold %s (%s)%s", shown(bytes_of[chosen]), times, kept)


def shown(threshold: float) -> str:
    """``"256 KiB"``, as a person reads it."""
    if threshold >= 1 << 60:
        return "inf"
    return f"{threshold / 1024:g} KiB" if threshold < 1 << 20 else f"{threshold / (1 << 20):g} MiB"


# ------------------------------------------------------------------------------------------------- before the first step


def begin(hooks: StepHooks, model: Any) -> Autotune | None:
    """What tries thresholds, or None where that is not wished or not needed: a threshold found earlier is taken. Collective."""
    if runtime.get_size() == 1:
        return None
    wished, given = settings.autotune(), hooks.fusion_threshold is not None or settings.has_fusion_threshold()
    on_ranks = collectives.all_gather(np.array([wished, given, hooks.has_bucket_hook()]))
    _check_agreement(on_ranks[:, 0])
    one_given, one_hook = on_ranks[:, 1].any(), on_ranks[:, 2].any()
    if not wished or one_given or one_hook or hooks.reproducible:
        if wished:
            reason = "a bucket_hook sees which gradients lie together" if one_hook else "the model is reproducible"
            why = "is given" if one_given else f"stays as it is: {reason}"
            runtime.logger.warning("TNT_AUTOTUNE tries nothing: the fusion threshold %s", why)
        return None
    key = autotune_cache.key_of(gradients.specs(adapter.trainable_variables(model)), hooks.wire_dtype())
    found = autotune_cache.find(key) if runtime.is_master_rank() else None
    threshold = float(collectives.broadcast(np.float64(-1 if found is None else found)))
    if threshold < 0:
        return Autotune(hooks, key)
    hooks.fusion_threshold = threshold
    runtime.logger.info("TNT_AUTOTUNE: fusion threshold %s, taken from %s", shown(threshold), autotune_cache.path())
    return None


def _check_agreement(wished: Any) -> None:
    if wished.all() or not wished.any():
        return
    with_it, without = int(np.argmax(wished)), int(np.argmin(wished))
    raise MismatchError(f"TNT_AUTOTUNE is set on rank {with_it} but not on rank {without}: set it on all ranks, or on none")
