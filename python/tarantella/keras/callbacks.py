"""Callbacks for several ranks: `Callback`, which says where a callback runs, `Checkpoint` and `TimeHistory`.

Keras' own callbacks and a user's work without them: `fit` knows on which ranks they belong (docs/training.md).
"""

import time
from collections.abc import Callable as Function
from typing import Any

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras.adapter import keras
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint.callback import Checkpoint
from tarantella.keras.reduction import statistics
from tarantella.strategy import ParallelStrategy

__all__ = ["Callback", "Checkpoint", "TimeHistory"]


class Callback:
    """Says on which ranks a callback runs: on the master only, or on all.

    Without it a callback of the user's runs on all ranks.

    Args:
        callback: a Keras callback.
        parallel_strategy: ``ParallelStrategy.DATA`` or None.
        group: all ranks, or None.
        aggregate_logs: has no effect, as logs are reduced over all ranks in each step. True is refused for a callback that runs
            on the master only, as the predecessor refused it.
        run_on_all_ranks: True: on every rank. False or None: on the master only.

    Returns:
        A callback for `fit`, `evaluate` and `predict` with the class and the state of the given one.

    Raises:
        TypeError: it is not a callback. ValueError: it was wrapped already, logs are to be aggregated on one rank, it cannot
            run on one rank (EarlyStopping, LearningRateScheduler, ReduceLROnPlateau, SwapEMAWeights, TerminateOnNaN), or it
            cannot be wrapped at all (BackupAndRestore, BaseLogger, Checkpoint).
        UnsupportedError: the strategy or the group is not supported.

    Examples:
        >>> once = tnt.callbacks.Callback(PostToChat())
        >>> everywhere = tnt.callbacks.Callback(keras.callbacks.TensorBoard("logs"), run_on_all_ranks=True)
        >>> model.fit(dataset, callbacks=[once, everywhere])
    """

    def __new__(
        cls,
        callback: Any,
        parallel_strategy: ParallelStrategy | None = None,
        group: Any = None,
        aggregate_logs: bool | None = None,
        run_on_all_ranks: bool | None = None,
    ) -> Any:
        kind = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(f"tnt.callbacks.Callback needs a Keras callback, not {kind}")
        if hasattr(type(callback), placement.ON_ALL_RANKS):
            raise ValueError(f"this {kind} was wrapped by tnt.callbacks.Callback already: wrap it once")
        placement.refuse_unsupported(callback)
        if placement.restores(callback) or isinstance(callback, Checkpoint):
            raise ValueError(f"cannot wrap {kind}: give it to fit as it is, or leave it out")
        if parallel_strategy == ParallelStrategy.PIPELINING and aggregate_logs:
            raise ValueError("cannot aggregate callback logs with pipelining")
        if parallel_strategy not in (None, ParallelStrategy.DATA):
            raise UnsupportedError("pipelining is not available in this version: leave parallel_strategy out")
        if group is not None and group.size != runtime.get_size():
            raise UnsupportedError("callbacks of a part of the ranks are not available in this version: leave group out")
        if aggregate_logs and not run_on_all_ranks:
            raise ValueError(
                "cannot aggregate callback logs if the callback runs on a single rank: use run_on_all_ranks=True, or leave "
                "aggregate_logs out, as logs are those of all ranks in any case"
            )
        if placement.must_decide_everywhere(callback) and not run_on_all_ranks:
            raise ValueError(
                f"cannot run callback of type {kind} on a single rank: give it to fit as it is, or with run_on_all_ranks=True"
            )
        return placement.sharing_state(callback, {placement.ON_ALL_RANKS: bool(run_on_all_ranks)})


class _Lap:
    """Consecutive steps, with the time and the exposed seconds at their beginning and after each."""

    def __init__(self, step: int, begin: float, exposed: float) -> None:
        self._first = (step, begin, exposed)
        self.last_step, self.last_time, self.last_exposed = self._first

    def update(self, step: int, now: float, exposed: float) -> None:
        self.last_step, self.last_time, self.last_exposed = step, now, exposed

    @property
    def steps(self) -> int:
        return self.last_step - self._first[0]

    @property
    def seconds(self) -> float:
        return self.last_time - self._first[1]

    @property
    def exposed(self) -> float:
        return self.last_exposed - self._first[2]


class TimeHistory(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures samples per second, and how long ranks waited for gradients, every few steps and for each epoch.

    Args:
        batch_size: the number of samples in a global batch. A shorter last batch counts as a whole one.
        logging_freq: the number of steps of an interval; the last one of an epoch may have fewer.
        verbose: 1 prints a line for each interval and epoch, on the master; 0 prints nothing.

    Attributes:
        intervals: a dict for each interval: ``epoch``, ``steps``, ``seconds``, ``samples_per_second`` and ``exposed_seconds``,
            the time in which this rank only waited for gradients of others (0 on one rank). Validation does not count.
        epochs: the same for each epoch.

    Examples:
        >>> times = tnt.callbacks.TimeHistory(batch_size=256, logging_freq=100)
        >>> model.fit(dataset.batch(256), epochs=3, callbacks=[times])
        >>> times.epochs[-1]["samples_per_second"]
    """

    tnt_decides_alike = True  # it decides nothing: see `placement`

    def __init__(self, batch_size: int, logging_freq: int = 100, verbose: int = 0) -> None:
        super().__init__()
        if batch_size < 1 or logging_freq < 1:
            raise ValueError(f"batch_size is {batch_size} and logging_freq {logging_freq}: both must be at least 1")
        self.batch_size = batch_size
        self.logging_freq = logging_freq
        self.verbose = verbose
        self.intervals: list[dict[str, float]] = []
        self.epochs: list[dict[str, float]] = []
        self.tnt_stats: Function[[], dict[str, float]] = lambda: statistics.NO_STATS
        self._epoch = 0
        self._laps: list[_Lap] = []  # of the current epoch and of the current interval

    def on_train_begin(self, logs: Any = None) -> None:
        self.intervals, self.epochs = [], []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._laps = [_Lap(0, time.perf_counter(), self._exposed()) for _ in range(2)]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for lap in self._laps:
            lap.update(batch + 1, time.perf_counter(), self._exposed())
        if self._laps[1].steps >= self.logging_freq:
            self._end_interval()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._laps[1].steps:
            self._end_interval()
        self._keep(self.epochs, self._laps[0], "epoch")

    def get_state(self) -> dict[str, Any]:
        """The state in a checkpoint."""
        return {"intervals": [*self.intervals], "epochs": [*self.epochs]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues after these intervals and epochs."""
        self.intervals, self.epochs = state["intervals"], state["epochs"]

    def _end_interval(self) -> None:
        lap = self._laps[1]
        self._keep(self.intervals, lap, "interval")
        self._laps[1] = _Lap(lap.last_step, lap.last_time, lap.last_exposed)

    def _exposed(self) -> float:
        return self.tnt_stats()["exposed_seconds"]

    def _keep(self, laps: list[dict[str, float]], lap: _Lap, what: str) -> None:
        speed = lap.steps * self.batch_size / lap.seconds if lap.seconds > 0 else 0.0
        laps.append(
            {
                "epoch": self._epoch,
                "steps": lap.steps,
                "seconds": lap.seconds,
                "samples_per_second": speed,
                "exposed_seconds": lap.exposed,
            }
        )
        if self.verbose and runtime.is_master_rank():
            share = lap.exposed / lap.seconds if lap.seconds > 0 else 0.0
            waiting = f", {share:.1%} of the time waiting for gradients" if self.tnt_stats()["busy_seconds"] > 0 else ""
            print(f"\nepoch {self._epoch + 1}, {what} of {lap.steps} steps: {speed:.1f} samples/s{waiting}", flush=True)
