"""The messages between the stages of a pipeline: which there are, in which order, and the ops that send and receive them.

Messages of one rank to another arrive in the order in which they were sent. The receiver knows that order from the schedule.
Each has a label, and an unexpected one is an error: a tensor in the place of another would give wrong numbers. The receiver
starts to receive them in that order, each into a tensor of its own, before it needs them, and waits for one when it needs it.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella.keras.pipeline.crossings import Crossing, Kind, Part
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.reduction import communicator, device_placement, ops
from tarantella.pipeline_schedule import Schedule, Task

_numbers = itertools.count(1)  # of messages, in this process


class Message(NamedTuple):
    """An array on its way from one stage to another: a part of a crossing, or its gradient.

    A gradient goes back from each stage that needed the tensor to the one before it, which adds its own part. So the parts are
    added up in the order in which one device does it.
    """

    sender: Task
    crossing: int  # its place in the cut
    part: int
    stage: int  # that gets it


def sent_by(task: Task, cut: Cut) -> list[Message]:
    """The messages that a task sends, in their order; those to stages on the same rank included."""
    return [message for message in _messages(task, cut) if message.sender == task]


def needed_by(task: Task, cut: Cut) -> list[Message]:
    """The messages that a task needs; those of stages on the same rank included."""
    return [message for message in _messages(task, cut) if message.stage == task.stage]


def _messages(task: Task, cut: Cut) -> Iterator[Message]:
    """All messages of the task's micro-batch in its direction."""
    for place, crossing in enumerate(cut.crossings):
        if task.is_forward and crossing.goes_forward:
            sender = Task(crossing.producer, task.micro_batch, True)
            for stage, part in itertools.product(crossing.consumers, range(len(crossing.parts))):
                yield Message(sender, place, part, stage)
        elif not task.is_forward and crossing.is_differentiable:
            for stage, later in itertools.pairwise(crossing.stages):
                yield Message(Task(later, task.micro_batch, False), place, 0, stage)


class Mail:
    """The messages of one step on one rank, in the graph that is being traced, or eagerly.

    Args:
        rank: this one's, within its pipeline.
        rows: gives the number of samples of a micro-batch, as a tensor and, where it is known, as a number.
        first: the rank in the job of the pipeline's first rank.
    """

    def __init__(
        self, cut: Cut, schedule: Schedule, rank: int, rows: Callable[[int], tuple[tf.Tensor, int | None]], first: int = 0
    ) -> None:
        self._cut, self._schedule, self._rank, self._rows, self._first = cut, schedule, rank, rows, first
        self._communicator = communicator.attachment()
        self._kept: dict[Message, tf.Tensor] = {}  # between two stages of this rank
        self._pending: dict[Message, tuple[int, tf.Tensor]] = {}
        self._sent: dict[int, Any] = {}  # to each rank, the last operation in a graph
        self._coming = {
            peer: [m for task in row for m in sent_by(task, cut) if schedule.rank_of(m.stage) == rank]
            for peer, row in enumerate(schedule.rows)
            if peer != rank
        }

    def _crossing(self, message: Message) -> Crossing:
        return self._cut.crossings[message.crossing]

    def send(self, message: Message, tensor: tf.Tensor) -> list[Any]:
        """Starts to send a tensor, after what was sent to the same rank before. Gives the operation, in a graph.

        A graph runs operations that do not depend on each other in any order, and the receiver knows messages by their order.
        """
        peer = self._schedule.rank_of(message.stage)
        if peer == self._rank:
            self._kept[message] = tensor
            return []
        before = [self._sent[peer]] if peer in self._sent else []
        with tf.control_dependencies(before), device_placement.on_host():
            operation = ops.library().tnt_send(
                tensor, communicator=self._communicator, peer=self._first + peer, label=self._label(message)
            )
        if operation is None:
            return []
        self._sent[peer] = operation
        return [operation]

    def expect(self, messages: Sequence[Message]) -> list[Any]:
        """Starts to receive these messages, after those that are sent before them. Gives the operations, in a graph."""
        started: list[Any] = []
        for message in messages:
            peer = self._schedule.rank_of(message.sender.stage)
            while peer != self._rank and message not in self._pending and message in self._coming[peer]:
                with tf.control_dependencies(started[-1:]):
                    started.append(self._start(peer, self._coming[peer].pop(0)))
        return [] if tf.executing_eagerly() else started

    def _start(self, peer: int, message: Message) -> Any:
        part, number = self._part(message), next(_numbers)
        shape = tf.constant(part.tail, tf.int64, [len(part.tail)])
        if part.has_rows:
            rows, _ = self._rows(message.sender.micro_batch)
            shape = tf.concat([tf.reshape(tf.cast(rows, tf.int64), [1]), shape], 0)
        with device_placement.on_host():
            pending = ops.library().tnt_receive(
                shape=shape,
                like=tf.zeros([], part.dtype),
                communicator=self._communicator,
                peer=self._first + peer,
                message=number,
                label=self._label(message),
            )
        self._pending[message] = number, pending
        return pending

    def _label(self, message: Message) -> str:
        """Says which message this is. Both ranks make it, and the receiver compares it with the one that came."""
        (stage, micro_batch, is_forward), crossing = message.sender, self._crossing(message)
        forward = "the losses" if crossing.kind is Kind.LOSSES else "the output"
        what = "the mask" if message.part else forward if is_forward else "the gradient"
        way = f"micro-batch {micro_batch}, stage {stage} to {message.stage}"
        return f"{what} of {crossing.name!r} (tensor {message.crossing}, {way})"

    def _part(self, message: Message) -> Part:
        return self._crossing(message).parts[message.part]

    def take(self, message: Message) -> tf.Tensor:
        """The tensor of a message that was expected, when it is there."""
        if message in self._kept:
            return self._kept.pop(message)
        number, pending = self._pending.pop(message)
        with device_placement.on_host():
            tensor = ops.library().tnt_received(pending=pending, communicator=self._communicator, message=number)
        part, (_, rows) = self._part(message), self._rows(message.sender.micro_batch)
        return tf.ensure_shape(tensor, [*([rows] if part.has_rows else []), *part.tail])

    def mark(self, task: Task | None = None) -> list[Any]:
        """Ends a task on the timeline; without one, the first task of a step begins. Gives the operation, in a graph."""
        label = "" if task is None else f"{task} of stage {task.stage}"
        with device_placement.on_host():
            operation = ops.library().tnt_task(communicator=self._communicator, label=label)
        return [] if operation is None else [operation]

    def wait_for_sends(self) -> list[Any]:
        """Waits until all that was sent has left this rank. Gives the operation, in a graph."""
        with device_placement.on_host():
            operation = ops.library().tnt_sent(communicator=self._communicator)
        return [] if operation is None else [operation]
