"""Errors between ranks: one exception class for each status of the library."""

import re
from typing import ClassVar


class TarantellaError(RuntimeError):
    """Something failed in the communication of the ranks; the text says what, on which rank, and what to do."""

    status: ClassVar[str] = "TNT_SYSTEM"

    # by this TensorFlow knows that it may make one from a text: else it would raise its own instead out of a tf.function
    __init__ = Exception.__init__


class InvalidArgumentError(TarantellaError, ValueError):
    """The call had no effect: fix the argument and call again."""

    status = "TNT_INVALID_ARGUMENT"


class MismatchError(TarantellaError):
    """The ranks did different things: another model, another call, another batch."""

    status = "TNT_MISMATCH"


class DeadlineError(TarantellaError, TimeoutError):
    """A rank did not arrive before the deadline (TNT_TIMEOUT)."""

    status = "TNT_TIMEOUT"


class PeerLostError(TarantellaError, ConnectionError):
    """A rank died, or its script ended, while others needed it."""

    status = "TNT_PEER_LOST"


class AbortedError(TarantellaError):
    """A rank ended the job; the text is its reason."""

    status = "TNT_ABORTED"


class RankFailedError(TarantellaError):
    """A function that `tnt.launch` ran has failed on a rank; the text has the rank and its traceback.

    Attributes:
        rank: the rank that failed first; None if the ranks could not be started.
        traceback: its traceback as text; empty if the rank ended without an exception, as by a signal.
    """

    rank: int | None = None
    traceback: str = ""


class UnsupportedError(TarantellaError, NotImplementedError):
    """Known, but not available in this version or on this machine."""

    status = "TNT_UNSUPPORTED"


_CLASSES: dict[str, type[TarantellaError]] = {
    cls.status: cls
    for cls in (
        TarantellaError,
        InvalidArgumentError,
        MismatchError,
        DeadlineError,
        PeerLostError,
        AbortedError,
        UnsupportedError,
    )
}

# how our TensorFlow ops mark their sentence inside TensorFlow's own message (python/extension/tensorflow/ops.cpp)
_MARKED = re.compile(r"\[tarantella (TNT_\w+)\] (.*?) \[/tarantella\]", re.DOTALL)


def from_status(status: str, sentence: str) -> TarantellaError:
    """The exception for a status of the C API, such as ``"TNT_TIMEOUT"``."""
    error: TarantellaError = _CLASSES.get(status, TarantellaError)(sentence)
    return error


def mark(status: str, sentence: str) -> str:
    """The sentence as `from_message` finds it again in a message of TensorFlow."""
    return f"[tarantella {status}] {sentence} [/tarantella]"


def from_message(message: str) -> TarantellaError | None:
    """Our exception out of an error message of TensorFlow, if one of our ops is its origin."""
    found = _MARKED.search(message)
    return from_status(found.group(1), found.group(2)) if found else None
