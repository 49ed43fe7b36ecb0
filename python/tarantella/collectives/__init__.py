"""Collectives on NumPy arrays and on objects, over all ranks, and agreement: what all ranks must have alike, or fail of alike.

Nothing here imports TensorFlow. Tensors and variables are `tarantella.keras.reduction`'s; groups of ranks, and the collectives
that the predecessor had, are in `tarantella.compat`.
"""

from tarantella.collectives.agreement import agree_on_failure, explained, meet, require_same
from tarantella.collectives.blocking import all_gather, all_reduce, as_one, barrier, broadcast, guarded, preceded
from tarantella.collectives.failures import failing_together
from tarantella.collectives.fused import all_reduce_each
from tarantella.collectives.objects import broadcast_object

__all__ = [
    "agree_on_failure",
    "all_gather",
    "all_reduce",
    "all_reduce_each",
    "as_one",
    "barrier",
    "broadcast",
    "broadcast_object",
    "explained",
    "failing_together",
    "guarded",
    "meet",
    "preceded",
    "require_same",
]
