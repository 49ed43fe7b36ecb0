"""`tnt.plan`: which gradients travel together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tarantella import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Plan:
    """The buckets of a model's gradients, in the order in which they are reduced; printed, a line for each."""

    def __init__(self, buckets: Sequence[str]) -> None:
        self.buckets = tuple(buckets)

    def __len__(self) -> int:
        return len(self.buckets)

    def __iter__(self) -> Iterator[str]:
        return iter(self.buckets)

    def __str__(self) -> str:
        return "\n".join(self.buckets)

    __repr__ = __str__


def plan(model: Any) -> Plan:
    """Prints on the master how the gradients of a `tnt.Model` are fused, and returns it on every rank. Collective.

    If no `fit` has made the plan yet, it is made here, for gradients that come from the last variable to the first. `fit` keeps
    it, or replaces it before its first step if the traced step makes gradients in another order.

    Args:
        model: what `tnt.Model` returned, with its variables built.

    Returns:
        A sequence of one line for each bucket: ``"bucket 0: 1.0 MiB, 14 tensors, dense_9/bias …"``.

    Raises:
        MismatchError: ranks have different models.

    Example:
        >>> tnt.plan(model)
        bucket 0: 524.0 KiB, 6 tensors, dense_64/bias …
        bucket 1: 2.0 MiB, 16 tensors, dense_61/bias …
    """
    of_model = getattr(type(model), "_tnt_plan", None)
    if of_model is None:
        raise TypeError(f"tnt.plan needs what tnt.Model returned, not {type(model).__name__}")
    found: Plan = of_model(model)
    if runtime.is_master_rank():
        print(found)
    return found
