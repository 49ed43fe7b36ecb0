"""Numbers that must be the same on all ranks, and failures that all ranks must learn of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from tarantella import runtime
from tarantella.collectives.blocking import all_gather
from tarantella.errors import DeadlineError, MismatchError, PeerLostError, TarantellaError

_NONE = -(1 << 62)
"""Stands for a number that a rank does not have."""
_MESSAGE_BYTES = 1000
_NAME_BYTES = 64
_VALUES = 10
"""So many numbers a call may have that ranks compare when it begins: all calls gather equally many bytes."""
_SCRIPT_ENDED = " left the job "
"""A part of the error of a rank that waits for one whose script has ended."""


def meet(call: str, **values: int | None) -> None:
    """Begins a call that all ranks must make, and names it if a rank does not. Collective.

    Args:
        call: such as ``"tnt.Model.fit"``, which may be something else on other ranks.
        values: at most `_VALUES` numbers that must be the same on all ranks, as for `require_same`.

    Raises:
        MismatchError: ranks called different things, or with other values. PeerLostError, DeadlineError: a rank is missing.
    """
    if runtime.get_size() == 1:
        return
    own = np.full(_VALUES, _NONE, np.int64)
    own[: len(values)] = _as_numbers(values)
    name = np.frombuffer(call.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"), np.uint8)
    with explained(call, MismatchError):
        on_ranks = all_gather(np.concatenate([name, own.view(np.uint8)]))
        names = [bytes(row[:_NAME_BYTES]).rstrip(b"\0").decode(errors="replace") for row in on_ranks]
        for rank, name_there in enumerate(names):
            if name_there != names[0]:
                raise MismatchError(f"rank {rank} called {name_there} while rank 0 called {names[0]}")
    _compare(call.removeprefix("tnt.Model."), values, [row[_NAME_BYTES:].view(np.int64).tolist() for row in on_ranks])


@contextmanager
def explained(call: str, *also: type[TarantellaError], instead: str = "") -> Iterator[None]:
    """In this context all ranks make the same call. If one is missing, the error says that all must make it.

    Args:
        also: errors that mean the same here.
        instead: the end of the message, if there is another way.
    """
    try:
        yield
    except (DeadlineError, PeerLostError, *also) as error:
        if isinstance(error, PeerLostError) and _SCRIPT_ENDED not in str(error):  # it was killed, which is another matter
            raise
        raise type(error)(
            f"{error}. {call} is collective: every rank must call it, so it must not stand under `if tnt.is_master_rank():`"
            f"{instead}"
        ) from error


def require_same(what: str, **values: int | None) -> None:
    """Compares numbers that must be the same on all ranks. Collective.

    Args:
        what: the first word of the error message, such as ``"fit"``.
        values: by name; None where there is none.

    Raises:
        MismatchError: on all ranks; names the first number that differs, and the ranks.
    """
    _compare(what, values, all_gather(np.array(_as_numbers(values), np.int64)).tolist())


def _as_numbers(values: Mapping[str, int | None]) -> list[int]:
    return [_NONE if value is None else value for value in values.values()]


def _compare(what: str, names: Iterable[str], on_ranks: Sequence[list[int]]) -> None:
    for rank, others in enumerate(on_ranks):
        for name, first, other in zip(names, on_ranks[0], others, strict=False):
            if first != other:
                shown = ["none" if value == _NONE else value for value in (other, first)]
                raise MismatchError(
                    f"{what}: {name} is {shown[0]} on rank {rank} and {shown[1]} on rank 0: it must be the same"
                )


def agree_on_failure(failure: BaseException | None) -> None:
    """Raises on all ranks the failure of any rank. Collective.

    Args:
        failure: this rank's, or None.

    Raises:
        The failure itself on its rank, TarantellaError with its text on the others.
    """
    if runtime.get_size() == 1:
        texts = [""]
    else:
        own = (f"{type(failure).__name__}: {failure}" if failure is not None else "").encode()[:_MESSAGE_BYTES]
        padded = np.frombuffer(own.ljust(_MESSAGE_BYTES, b"\0"), np.uint8)
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in all_gather(padded)]
    if failure is not None:
        raise failure
    for rank, text in enumerate(texts):
        if text:
            raise TarantellaError(f"rank {rank} failed: {text}")
