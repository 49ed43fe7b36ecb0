"""`TNT_FUSION_THRESHOLD=autotune`: the threshold is chosen by trying a few during the first steps of training.

These are ordinary training steps: the bucket in which a gradient travels changes no bit of it. Each threshold has a plan and a
traced step of its own. The thresholds alternate step by step, so that a disturbance of the machine hits all of them alike. The
one with the shortest median step is kept.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarantella import collectives, runtime, settings
from tarantella.errors import MismatchError
from tarantella.keras import adapter
from tarantella.keras.reduction import autotune_cache, gradients
from tarantella.keras.reduction.registry import ReducerRegistry

ROUNDS = 7  # measured trials of each threshold
FACTORS = (1.0, 1 / 4, 4.0, math.inf)  # the thresholds tried, as multiples of the default; the default is traced already
MARGIN = 0.02  # the default stays unless another threshold's step is shorter by more than this part


def trials(n: int) -> list[tuple[int, bool]]:
    """The candidates, of n, in the order in which they are tried, and whether the trial is measured."""
    warm_up = [(i, False) for i in range(1, n)]  # the first step of a candidate is traced
    # each round begins with another candidate: an epoch's first step is slow, and must not always hit the same one
    return [*warm_up, *(((first + i) % n, True) for first in range(ROUNDS) for i in range(n))]


def best(seconds: Sequence[float]) -> int:
    """The candidate with the shortest step; the first one unless another is clearly better."""
    shortest = min(range(len(seconds)), key=lambda i: seconds[i])
    return shortest if seconds[shortest] < seconds[0] * (1 - MARGIN) else 0


class Autotune(adapter.Callback):
    """Tries thresholds while `fit` trains, over several calls of `fit` if one has too few steps. Collective in all it does.

    Args:
        reducers: the model's.
        key: what the threshold is stored under in the cache.
        awaits_reduction: whether an optimizer that accumulates gradients has not reduced any yet.
    """

    def __init__(self, reducers: ReducerRegistry, key: dict[str, Any], awaits_reduction: Callable[[], bool]) -> None:
        super().__init__()
        self.random_operations: list[str] = []  # of the last step that was traced
        self.finished = False
        self._reducers = reducers
        self._key = key
        self._awaits_reduction = awaits_reduction
        self._thresholds: list[float | None] = []
        self._functions: dict[int, Any] = {}  # the traced step of each candidate
        self._trials: list[tuple[int, bool]] = []
        self._n_done = 0
        self._seconds: list[list[float]] = []  # of each candidate's measured trials
        self._step_seconds: list[float] = []  # of the current trial
        self._begin = 0.0

    def forget_traces(self) -> None:
        """The traced steps are of no use any more."""
        self._functions.clear()

    # Keras calls these

    def on_train_begin(self, logs: Any = None) -> None:
        self._step_seconds.clear()
        if self._trials and not self.finished:
            self._use(self._trials[self._n_done][0])

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        seconds = time.perf_counter() - self._begin
        if self.finished:
            return
        if not self._trials:
            if not self._awaits_reduction():
                self._start()
            return
        self._step_seconds.append(seconds)
        if len(self._step_seconds) < max(map(adapter.steps_of_update, adapter.held_optimizers(self.model)), default=1):
            return
        candidate, is_measured = self._trials[self._n_done]
        if is_measured:
            self._seconds[candidate].append(sum(self._step_seconds))
        self._step_seconds.clear()
        self._n_done += 1
        if self._n_done == len(self._trials):
            self._choose([statistics.median(seconds) for seconds in self._seconds])
        else:
            self._use(self._trials[self._n_done][0])

    def on_train_end(self, logs: Any = None) -> None:
        if self.finished:
            return
        done = f"after {self._n_done} of {len(self._trials)} trials" if self._trials else "before it began"
        runtime.logger.warning("autotune: fit ended %s: the fusion threshold stays as it was, the next fit goes on", done)
        if self._trials:
            self._use(0)

    # how the choice is made

    def _start(self) -> None:
        random = self.random_operations
        if collectives.all_reduce(len(random), op="max") > 0:
            self._end("the step draws random numbers by %s, and would draw others if it were traced again", ", ".join(random))
            return
        self._thresholds, plans = [None], [self._buckets()]
        if not plans[0]:
            self._end("no gradient lies in a bucket")
            return
        default = self._default_bytes()
        for threshold in (default * factor for factor in FACTORS[1:]):
            threshold = math.floor(threshold) if math.isfinite(threshold) else threshold
            runtime.logger.info("autotune: the plan with fusion threshold %s:", format_threshold(threshold))
            self._reducers.add_plan(threshold)
            if self._buckets(threshold) in plans:
                self._reducers.drop_plan(threshold)
            else:
                self._thresholds.append(threshold)
                plans.append(self._buckets(threshold))
        if len(self._thresholds) == 1:
            self._end("every fusion threshold gives the same plan")
            return
        self._trials = trials(len(self._thresholds))
        self._seconds = [[] for _ in self._thresholds]
        self._functions = {0: self.model.train_function}
        self._use(self._trials[0][0])

    def _buckets(self, threshold: float | None = None) -> list[list[list[int]]]:
        """The positions of the gradients in each bucket, for each reducer of this threshold."""
        return [reducer.buckets for reducer in self._reducers.reducers_of_plan(threshold)]

    def _default_bytes(self) -> float:
        """The threshold that was in use before, also where the library has chosen it."""
        return float(max(reducer.fusion_threshold for reducer in self._reducers.reducers_of_plan()))

    def _end(self, why: str, *args: Any) -> None:
        runtime.logger.info(f"autotune: nothing was tried: {why}", *args)
        self.finished = True

    def _use(self, candidate: int) -> None:
        """The next step uses this candidate's plan."""
        self._reducers.fusion_threshold = self._thresholds[candidate]
        if candidate not in self._functions:
            self._functions[candidate] = adapter.new_train_function(self.model)
        self.model.train_function = self._functions[candidate]

    def _choose(self, medians: list[float]) -> None:
        seconds = collectives.all_reduce(np.array(medians), op="max")
        chosen = best(seconds)
        bytes_of = [self._default_bytes() if t is None else t for t in self._thresholds]
        step_ms = {format_threshold(b): round(float(s) * 1e3, 3) for b, s in zip(bytes_of, seconds, strict=True)}
        self._use(chosen)
        for candidate, threshold in enumerate(self._thresholds):
            if candidate != chosen:
                self._reducers.drop_plan(threshold)
        self._functions.clear()
        self.finished = True
        if runtime.is_master_rank():
            file = autotune_cache.store(self._key, bytes_of[chosen], step_ms)
            times = ", ".join(f"{threshold}: {ms:g} ms" for threshold, ms in step_ms.items())
            stored = "" if file is None else f"; stored in {file}"
            runtime.logger.info("autotune: fusion threshold %s (%s)%s", format_threshold(bytes_of[chosen]), times, stored)


def format_threshold(threshold: float) -> str:
    """The threshold in words: ``"256 KiB"``."""
    if threshold >= 1 << 60:
        return "inf"
    return f"{threshold / 1024:g} KiB" if threshold < 1 << 20 else f"{threshold / (1 << 20):g} MiB"


# ------------------------------------------------------------------------------------------------- before the first step


def create(reducers: ReducerRegistry, variables: Sequence[Any], awaits_reduction: Callable[[], bool]) -> Autotune | None:
    """The callback that tries thresholds. None if it is not asked for, or an earlier run has stored the best one. Collective.

    Args:
        reducers: the model's; a stored threshold is set here.
        variables: the model's trainable ones.
        awaits_reduction: as `Autotune` takes it.
    """
    if runtime.get_size() == 1:
        return None
    wanted, given = settings.autotune(), reducers.fusion_threshold is not None or settings.fusion_threshold() is not None
    on_ranks = collectives.all_gather(np.array([wanted, given, reducers.has_bucket_hook]))
    _check_agreement(on_ranks[:, 0])
    if not wanted:
        return None
    reason = _reason_to_try_nothing(bool(on_ranks[:, 1].any()), bool(on_ranks[:, 2].any()), reducers.tree)
    if reason:
        runtime.logger.warning("autotune: nothing is tried: the fusion threshold %s", reason)
        return None
    key = autotune_cache.key_of(gradients.specs(variables), reducers.wire_dtype())
    found = autotune_cache.find(key) if runtime.is_master_rank() else None
    threshold = float(collectives.broadcast(np.float64(-1 if found is None else found)))
    if threshold < 0:
        return Autotune(reducers, key, awaits_reduction)
    reducers.fusion_threshold = threshold
    runtime.logger.info("autotune: fusion threshold %s, taken from %s", format_threshold(threshold), autotune_cache.path())
    return None


def _reason_to_try_nothing(is_given: bool, has_bucket_hook: bool, is_reproducible: bool) -> str:
    if is_given:
        return "is given"
    if has_bucket_hook:
        return "stays as it is: a bucket_hook sees which gradients lie together"
    return "stays as it is: the model is reproducible" if is_reproducible else ""


def _check_agreement(wanted: Any) -> None:
    if wanted.all() or not wanted.any():
        return
    with_it, without = int(np.argmax(wanted)), int(np.argmin(wanted))
    raise MismatchError(f"TNT_FUSION_THRESHOLD is autotune on rank {with_it} but not on rank {without}: it must be the same")
