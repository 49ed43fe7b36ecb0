"""Messages between stages: the receiver knows them by their order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tarantella.keras.pipeline import messages
from tarantella.keras.pipeline.crossings import Crossing
from tarantella.pipeline_schedule import Task


class Sending:
    """In place of the library: each send is an operation of the graph."""

    def tnt_send(self, tensor, communicator, peer, label):
        return tf.identity(tensor, name=f"to_{peer}").op


@pytest.fixture
def mail(monkeypatch):
    monkeypatch.setattr(messages.communicator, "attachment", lambda: 0)
    monkeypatch.setattr(messages.ops, "library", Sending)
    schedule = SimpleNamespace(rank_of=lambda stage: stage, rows=[])
    cut = SimpleNamespace(crossings=[Crossing(f"layer{i}", i, 0, (1, 2), ()) for i in range(5)])
    return messages.Mail(cut, schedule, 0, lambda micro_batch: (tf.constant(1), 1))


def test_what_goes_to_one_rank_is_sent_in_its_order(mail):
    task = Task(0, 0, True)
    with tf.Graph().as_default():
        sent = [
            mail.send(messages.Message(task, place, 0, stage), tf.constant(1.0))[0]
            for place, stage in enumerate([1, 2, 1, 2, 1])
        ]
    befores = [[before for before in op.control_inputs if before in sent] for op in sent]
    assert befores == [[], [], [sent[0]], [sent[1]], [sent[2]]]
