"""`tnt.plan`: the buckets in which gradients travel."""

from typing import Any

from tarantella import runtime


class Plan(tuple[str, ...]):
    """A line for each bucket of a model's gradients, in the order in which they are reduced. Prints as these lines."""

    def __repr__(self) -> str:
        return "\n".join(self)


def plan(model: Any) -> Plan:
    """Prints on the master how the gradients of a `tnt.Model` are fused, and returns it on every rank. Collective.

    If no `fit` has made the plan yet, it is made here, for gradients in the reverse order of the variables. `fit` keeps it, or
    replaces it before its first step if the traced step makes gradients in another order.

    Args:
        model: a model that `tnt.Model` returned, with its variables built.

    Returns:
        A sequence of one line for each bucket: ``"bucket 0: 1.0 MiB, 14 tensors, dense_9/bias …"``.

    Raises:
        MismatchError: ranks have different models.

    Examples:
        >>> tnt.plan(model)
        bucket 0: 524.0 KiB, 6 tensors, dense_64/bias …
        bucket 1: 2.0 MiB, 16 tensors, dense_61/bias …
    """
    plan_method = getattr(type(model), "_tnt_plan", None)
    if plan_method is None:
        raise TypeError(f"tnt.plan needs what tnt.Model returned, not {type(model).__name__}")
    found: Plan = plan_method(model)
    if runtime.is_master_rank():
        print(found)
    return found
