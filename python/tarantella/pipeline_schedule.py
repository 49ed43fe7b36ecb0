"""Schedules of a pipeline, as tables: which rank computes which micro-batch of which stage, when, forward or backward.

Stage s of a pipeline is computed by rank ``s % ranks``. A rank has several stages only in the interleaved schedule. One unit of
time is one forward or one backward pass of one stage; messages take none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tarantella.errors import InvalidArgumentError

NAMES = ("gpipe", "1f1b", "interleaved")


class Task(NamedTuple):
    """A forward or a backward pass of one micro-batch through one stage."""

    stage: int
    micro_batch: int
    is_forward: bool

    def __str__(self) -> str:
        return f"{'F' if self.is_forward else 'B'}{self.micro_batch}"


@dataclass(frozen=True)
class Schedule:
    """A schedule: for each rank its tasks in their order.

    Attributes:
        times: when each task begins, if every one takes one unit of time and begins as soon as it can.
    """

    name: str
    stages: int
    micro_batches: int
    rows: tuple[tuple[Task, ...], ...]
    times: dict[Task, int]

    @property
    def ranks(self) -> int:
        return len(self.rows)

    def rank_of(self, stage: int) -> int:
        return stage % self.ranks

    def stages_of(self, rank: int) -> range:
        return range(rank, self.stages, self.ranks)

    @property
    def length(self) -> int:
        """The units of time from the first task to the end of the last."""
        return max(self.times.values()) + 1

    @property
    def bubble(self) -> float:
        """The part of all ranks' time in which they wait: ``(ranks - 1) / (micro_batches * stages / ranks + ranks - 1)``."""
        return 1 - len(self.times) / (self.ranks * self.length)

    def activations(self, rank: int) -> int:
        """The most micro-batches, of all its stages together, whose activations the rank holds at one time."""
        alive = highest = 0
        for task in self.rows[rank]:
            alive += 1 if task.is_forward else -1
            highest = max(highest, alive)
        return highest

    def without_backward(self) -> "Schedule":
        """The same order without the backward passes: of an evaluation or a prediction."""
        rows = tuple(tuple(task for task in row if task.is_forward) for row in self.rows)
        return Schedule(self.name, self.stages, self.micro_batches, rows, _times(rows, self.stages))

    def __str__(self) -> str:
        """A line for each rank, a column for each unit of time; with several stages on a rank ``F3.1`` is stage 1's."""
        several = self.stages > self.ranks
        cells = {
            (self.rank_of(task.stage), time): f"{task}.{task.stage // self.ranks}" if several else str(task)
            for task, time in self.times.items()
        }
        width = max(map(len, cells.values()))
        lines = [
            f"rank {rank}  " + " ".join(cells.get((rank, time), ".").ljust(width) for time in range(self.length)).rstrip()
            for rank in range(self.ranks)
        ]
        return "\n".join([f"{self.name}: bubble {100 * self.bubble:.1f} %", *lines])


def schedule(name: str, ranks: int, stages: int, micro_batches: int) -> Schedule:
    """The schedule of this name.

    Raises:
        InvalidArgumentError: there is no such schedule, or none for these numbers.
    """
    if name not in NAMES:
        raise InvalidArgumentError(f"schedule is {name!r}: use {', '.join(map(repr, NAMES[:-1]))} or {NAMES[-1]!r}")
    if stages % ranks:
        raise InvalidArgumentError(f"{stages} stages cannot be divided evenly among {ranks} ranks")
    if stages > ranks and name != "interleaved":
        raise InvalidArgumentError(
            f"{stages} stages on {ranks} ranks: with schedule={name!r} each rank has one stage. Start {stages} ranks, or use "
            f"schedule='interleaved', in which a rank has {stages // ranks}"
        )
    if stages > ranks and micro_batches % ranks:
        raise InvalidArgumentError(
            f"schedule='interleaved' takes micro-batches in groups of {ranks}, one for each rank, and micro_batches is "
            f"{micro_batches}: use a multiple of {ranks}"
        )
    rows = tuple(_row(name, rank, ranks, stages, micro_batches) for rank in range(ranks))
    return Schedule(name, stages, micro_batches, rows, _times(rows, stages))


def _row(name: str, rank: int, ranks: int, stages: int, micro_batches: int) -> tuple[Task, ...]:
    each = stages // ranks
    forward = [Task(rank + ranks * chunk, m, True) for chunk, m in _order(ranks, each, micro_batches)]
    backward = [Task(rank + ranks * (each - 1 - chunk), m, False) for chunk, m in _order(ranks, each, micro_batches)]
    ahead = len(forward)  # forward passes before the first backward pass
    if name != "gpipe":
        ahead = min(ahead, ranks - rank if each == 1 else 2 * (ranks - rank - 1) + (each - 1) * ranks + 1)
    row = forward[:ahead]
    for place, task in enumerate(backward):
        row.append(task)
        row.extend(forward[ahead + place : ahead + place + 1])
    return tuple(row)


def _order(ranks: int, each: int, micro_batches: int) -> list[tuple[int, int]]:
    """The order of a rank's chunks and micro-batches: as many micro-batches as there are ranks through each chunk in turn."""
    if each == 1:
        return [(0, m) for m in range(micro_batches)]
    groups = range(0, micro_batches, ranks)
    return [(chunk, m) for begin in groups for chunk in range(each) for m in range(begin, begin + ranks)]


def needed_by(task: Task, stages: int) -> list[Task]:
    """The tasks that must have ended before this one begins."""
    stage, m, is_forward = task
    if is_forward:
        return [] if stage == 0 else [Task(stage - 1, m, True)]
    return [Task(stage, m, True), *([] if stage == stages - 1 else [Task(stage + 1, m, False)])]


def begins(
    rows: Sequence[Sequence[Task]],
    stages: int,
    length: Callable[[Task], float] = lambda task: 1,
    delay: Callable[[Task, Task], float] = lambda sender, receiver: 0,
) -> dict[Task, float]:
    """When each task begins, if it does as soon as it can.

    Args:
        length: of a task.
        delay: between the end of a task and the begin of one that needs it.

    Raises:
        RuntimeError: the ranks would wait for each other for ever.
    """
    begin: dict[Task, float] = {}
    places, free = [0] * len(rows), [0.0] * len(rows)
    while any(place < len(row) for place, row in zip(places, rows, strict=True)):
        before = len(begin)
        for rank, row in enumerate(rows):
            while places[rank] < len(row) and all(n in begin for n in needed_by(row[places[rank]], stages)):
                task = row[places[rank]]
                arrivals = [begin[n] + length(n) + delay(n, task) for n in needed_by(task, stages)]
                begin[task] = max([free[rank], *arrivals])
                free[rank], places[rank] = begin[task] + length(task), places[rank] + 1
        if len(begin) == before:
            raise RuntimeError("a schedule of a pipeline in which the ranks wait for each other")
    return begin


def _times(rows: Sequence[Sequence[Task]], stages: int) -> dict[Task, int]:
    return {task: int(time) for task, time in begins(rows, stages).items()}
