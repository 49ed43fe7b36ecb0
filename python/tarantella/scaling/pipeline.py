"""The step of a pipeline on many ranks, from the tasks of one on a few: the schedule, replayed with the times of a machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from tarantella.pipeline_schedule import Schedule, Task, begins, schedule
from tarantella.scaling import model
from tarantella.scaling.pipeline_timeline import PipelineStep
from tarantella.scaling.platform import Machine


@dataclass(frozen=True)
class PipelinePrediction:
    """One number of ranks. Times in seconds."""

    ranks: int
    stages: int
    micro_batches: int
    step: float
    messages: float
    """The step would be shorter by this if messages took no time."""
    bubble: float
    """The part of the ranks' time in which they wait, messages included."""
    schedule_bubble: float
    """The bubble if messages took no time and a backward pass took as long as a forward pass."""
    speed_up: float
    efficiency: float


def predict_pipeline(
    step: PipelineStep, machine: Machine, name: str, ranks: Sequence[int], micro_batches: int, each: int
) -> list[PipelinePrediction]:
    """The same micro-batches through as many stages as there are ranks, times ``each``.

    The stages of the timeline take the time that they took. Any other number of stages is one of equal stages.

    Args:
        name: of the schedule.
        micro_batches: of a step, each as large as in the timeline.

    Raises:
        InvalidArgumentError: the schedule does not exist for these numbers.
    """
    return [_predict(step, machine, schedule(name, n, n * each, micro_batches)) for n in ranks]


def _predict(step: PipelineStep, machine: Machine, table: Schedule) -> PipelinePrediction:
    def length(task: Task) -> float:
        times = step.forward if task.is_forward else step.backward
        return times[task.stage] if len(times) == table.stages else sum(times) / table.stages

    def delay(sender: Task, receiver: Task) -> float:
        ranks = table.rank_of(sender.stage), table.rank_of(receiver.stage)
        return model.message(machine, *ranks, step.message) if ranks[0] != ranks[1] else 0.0

    def last_end(begin: dict[Task, float]) -> float:
        return max(time + length(task) for task, time in begin.items())

    with_messages = last_end(begins(table.rows, table.stages, length, delay))
    without = last_end(begins(table.rows, table.stages, length))
    busy = table.micro_batches * (sum(step.forward) + sum(step.backward))
    speed_up = (busy + step.rest) / (with_messages + step.rest)
    return PipelinePrediction(
        ranks=table.ranks,
        stages=table.stages,
        micro_batches=table.micro_batches,
        step=with_messages + step.rest,
        messages=with_messages - without,
        bubble=1 - busy / with_messages / table.ranks,
        schedule_bubble=table.bubble,
        speed_up=speed_up,
        efficiency=speed_up / table.ranks,
    )
