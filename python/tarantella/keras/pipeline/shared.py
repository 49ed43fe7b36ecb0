"""Trained variables that several stages use, such as an embedding that also makes the output.

The first of these stages updates the variable, from the sum of all gradients, and the other ranks get its new value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella.collectives.group import Group
from tarantella.keras import adapter
from tarantella.keras.pipeline.crossings import Kind
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.reduction import collectives
from tarantella.pipeline_schedule import Schedule


def send_new_values(variables: Sequence[Any], cut: Cut, schedule: Schedule, replicas: Replicas) -> None:
    """Gives the ranks that share a variable its value from the rank that has updated it. Collective on these ranks.

    Args:
        variables: of the model.
    """
    by_id = {id(v): v for v in variables}
    for crossing in cut.crossings_of_kind(Kind.VARIABLE):
        positions = list(dict.fromkeys(schedule.rank_of(stage) for stage in crossing.stages))  # that of the owner first
        if len(positions) == 1 or replicas.position not in positions:
            continue
        inner = adapter.unwrap(by_id[crossing.key])
        group = Group(sorted(replicas.first_rank + position for position in positions))
        root = sorted(positions).index(positions[0])
        inner.assign(collectives.broadcast(tf.identity(inner.read_value()), root, group))
