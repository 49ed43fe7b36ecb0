"""State that the code around a gradient declares: whether it runs in a step of `tnt.Model`, or inside `tnt.no_sync`."""

import enum
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras.adapter.tensorflow import enclosing_function


class _Phase(enum.Enum):
    MODEL_STEP = enum.auto()
    APPLYING = enum.auto()
    SHARD = enum.auto()
    TRIAL = enum.auto()


_open_phases: Counter[_Phase] = Counter()  # how many contexts of each phase are open
_weight: Callable[[], tf.Tensor] | None = None
_no_sync: list[Any] = []  # for each context that is open, the graph in which it was entered (None: eagerly)


@contextmanager
def _in_phase(phase: _Phase) -> Iterator[None]:
    _open_phases[phase] += 1
    try:
        yield
    finally:
        _open_phases[phase] -= 1


def model_step() -> AbstractContextManager[None]:
    """A step of `tnt.Model` is traced or runs eagerly."""
    return _in_phase(_Phase.MODEL_STEP)


def in_model_step() -> bool:
    """Whether a step of `tnt.Model` is traced or runs eagerly."""
    return _open_phases[_Phase.MODEL_STEP] > 0


def applying() -> AbstractContextManager[None]:
    """In this context optimizers get gradients that Tarantella has reduced, or are traced for a graph that never runs."""
    return _in_phase(_Phase.APPLYING)


def is_applying() -> bool:
    """Whether an optimizer changes variables in a way that keeps ranks alike."""
    return _open_phases[_Phase.APPLYING] > 0


@contextmanager
def weighted(weight: Callable[[], tf.Tensor]) -> Iterator[None]:
    """In this context gradients are made that will be reduced with this weight of the rank."""
    global _weight
    before, _weight = _weight, weight
    try:
        yield
    finally:
        _weight = before


def weight() -> tf.Tensor | None:
    """This rank's weight for the gradients that are being made, a scalar of type float64; None if it is not known."""
    return None if _weight is None else _weight()


def shard() -> AbstractContextManager[None]:
    """One of a rank's shards is computed, in a step that does not depend on the number of ranks."""
    return _in_phase(_Phase.SHARD)


def refuse_in_shards(what: str) -> None:
    """Raises while a rank computes its shards one after the other: ranks would exchange some of a batch's shards only."""
    if _open_phases[_Phase.SHARD]:
        raise UnsupportedError(
            f"{what} in a step with reproducible=V, where a rank computes its shards one after the other and never has all "
            "of a batch's samples at once: train without reproducible"
        )


class RefusedInTrial(Exception):
    """The function under trial does what no trial can do, such as asking for numbers of other ranks; the text says what."""


class GathersInTrial(RefusedInTrial):
    """It communicates: whoever wrote it knows of ranks."""


def trial() -> AbstractContextManager[None]:
    """A loss or a step is tried on a few samples: it must not communicate."""
    return _in_phase(_Phase.TRIAL)


def in_trial() -> bool:
    """Whether something is tried on made-up samples."""
    return _open_phases[_Phase.TRIAL] > 0


def refuse_in_trial(what: str) -> None:
    """Raises inside `trial`."""
    if _open_phases[_Phase.TRIAL]:
        raise GathersInTrial(f"it calls {what.replace('tnt_', 'tnt.')}")


def refuse_in_model_step(what: str, instead: str) -> None:
    """Raises inside a step of `tnt.Model`, whose compiled optimizer reduces the gradients."""
    if in_model_step():
        raise UnsupportedError(
            f"{what} inside a training step of tnt.Model, whose compiled optimizer reduces the gradients already: {instead}"
        )


@contextmanager
def no_sync() -> Iterator[None]:
    """Context in which `DistributedGradientTape.gradient` gives this rank's own gradients, for accumulation.

    Inside, nothing is communicated and nothing is weighted. Add the gradients up, and hand the sum to the optimizer of
    `tnt.optimizers.Optimizer` outside: there it is reduced, once. Not collective.

    A `tf.function` is traced once, with or without the context: enter it inside the function that calls
    `gradient`, not around its call.

    Raises:
        UnsupportedError: (from the calls inside) an optimizer of Tarantella was applied, or the context was entered outside
            of the function that is being traced.

    Examples:
        >>> with tnt.no_sync():
        ...     sums = [s + g for s, g in zip(sums, tape.gradient(loss, variables))]
    """
    _no_sync.append(graph())
    try:
        yield
    finally:
        _no_sync.pop()


def is_synchronised() -> bool:
    """Whether gradients are reduced here: not inside `no_sync`."""
    if not _no_sync:
        return True
    if _no_sync[-1] is not enclosing_function(graph(), _no_sync[-1]):
        raise UnsupportedError(
            "tnt.no_sync() was entered outside of the tf.function that is being traced: the function would keep its gradients "
            "to itself wherever it is called. Enter it inside the function"
        )
    return False


def graph() -> Any:
    """The graph to which operations are being added; None when they run eagerly."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
