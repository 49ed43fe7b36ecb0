"""The generations of an elastic job: after ranks were lost, the others leave it and join its next generation.

The launcher (`--elastic`) forms it: it knows which ranks run (`launcher/watch/generations.py`). Communicators and what was made
of them belong to a generation, and are made anew when they are needed. A newcomer, which starts while the others run, is alone
in a job of its own until it joins.
"""

import functools
import itertools
import json
import os
import socket
from typing import Any, NamedTuple

from tarantella import runtime, variables
from tarantella.environment import REFUSED, Message, elastic_address, is_rank
from tarantella.errors import AbortedError, DeadlineError, PeerLostError, TarantellaError, UnsupportedError, from_message

_LOST = (PeerLostError, DeadlineError, AbortedError)
_BYTES = 4096
_has_asked = False  # for a place in a generation
_joined = 0  # generations that this process has joined
_is_late = False  # whether one ended while this process joined it, as its first
_trainings = itertools.count(1)  # of this process


class Position(NamedTuple):
    """The next step of a training."""

    epoch: int
    step: int
    training: int
    """Which training of the script it is, from 1: a call of `fit`, or of a function of `tnt.elastic.run`."""

    def __str__(self) -> str:
        return " ".join(map(str, self))


def is_elastic() -> bool:
    """Whether the job goes on when ranks are lost."""
    return variables.ELASTIC in os.environ


def is_newcomer() -> bool:
    """Whether this rank has not joined the others yet."""
    return variables.NEWCOMER in os.environ


def is_loss(error: BaseException) -> bool:
    """Whether communication has ended, as it does when a rank is lost. The launcher knows whether one was."""
    found = error if isinstance(error, TarantellaError) else from_message(str(error))
    return isinstance(found, _LOST)


def join_next(meeting: Position | None = None) -> bool | None:
    """Leaves the job, and joins its next generation. Returns when all ranks of it have joined.

    Args:
        meeting: the step before which newcomers may join as well.

    Returns:
        Whether there is one. False: the launcher has ended, or ends the job. None: the others have gone on without this
        newcomer.

    Raises:
        PeerLostError: the launcher forms none, and says why.
    """
    global _has_asked, _joined, _is_late
    _has_asked = True
    while True:
        runtime.leave()
        answer = _ask(Message.JOIN, meeting)
        if not answer:
            return False
        found: dict[str, str] = json.loads(answer)
        if not found:
            return None
        if REFUSED in found:
            raise PeerLostError(found[REFUSED])
        os.environ.update(found)
        os.environ.pop(variables.JOINED, None)
        try:
            runtime.world()
        except TarantellaError as error:  # one more was lost while they joined
            if not is_loss(error):
                raise
            _is_late = _is_late or (_joined == 0 and not is_newcomer())
            continue
        _joined += 1
        return True


def _join_first() -> None:
    """Joins the first generation, if this rank has not asked for it: like all, it is formed of the ranks that run then."""
    if _has_asked or not (is_rank() and is_elastic()) or is_newcomer() or variables.JOINED in os.environ:
        return
    if not join_next():
        raise AbortedError("the job ended before this rank could join it")


runtime.before_joining(_join_first)


def joined() -> int:
    """How many generations this process has joined."""
    return _joined


def takes_part_late() -> bool:
    """Whether ranks were lost before this one had joined any: others may have joined, and try their first operation again.

    True once: whoever asks brings this rank together with them.
    """
    global _is_late
    was_late, _is_late = _is_late, False
    return was_late


def begin_training() -> int:
    """The number of a training that begins, of those that go on when ranks are lost."""
    return next(_trainings)


def position_of_others(to_meet: bool) -> Position | None:
    """Asks where the training of the others is, and waits for the answer. None: the launcher has ended, or ends the job.

    to_meet: they wait there for this newcomer.
    """
    answer = _ask(Message.READY if to_meet else Message.WHERE)
    return Position(*map(int, answer.split())) if answer else None


def size_for_script() -> int:
    """The number of ranks from which batch sizes and learning rates are computed: on a newcomer, with which the job began."""
    return expected_place()[1] if is_newcomer() else runtime.get_size()


def expected_place() -> tuple[int, int]:
    """The rank that this newcomer will probably have, and the number of ranks with which the job began."""
    rank, size = map(int, os.environ[variables.NEWCOMER].split())
    return rank, size


def has_joined() -> None:
    """This newcomer is one of the ranks from now on."""
    os.environ.pop(variables.NEWCOMER, None)


def refusal(reason: str) -> UnsupportedError:
    """The error of a newcomer that cannot take part. The launcher hears of it, and the others go on without it."""
    _ask(Message.REFUSE)
    text = f"this rank cannot join the others: {reason}"
    runtime.world().abort(text)
    error: UnsupportedError = UnsupportedError(text)
    return error


def refusal_of_training(others: int) -> UnsupportedError:
    """As `refusal`, of a newcomer that is not in this training, as the others are."""
    return refusal(f"the others are in training {others} of the script, and what the earlier ones gave is not known here")


def _say(connection: socket.socket, message: str, position: Position | None = None) -> None:
    connection.connect(elastic_address(os.environ[variables.LAUNCHER]))
    connection.sendall(f"{os.environ[variables.ELASTIC]} {message} {position or ''}\n".encode())


def _ask(message: str, position: Position | None = None) -> bytes:
    """The launcher's answer; empty if it gives none."""
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _say(connection, message, position)
            while data := connection.recv(_BYTES):
                received += data
        except OSError:
            return b""
    return received


class Door:
    """The master's connection to the launcher, which passes on the requests of newcomers."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None

    def is_knocked_at(self, position: Position) -> bool:
        """Whether a newcomer is to be let in before this step. Others are told the position. Takes a microsecond."""
        try:
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                _say(self._connection, Message.LISTEN)
            asked = self._connection.recv(_BYTES, socket.MSG_DONTWAIT).decode().split()
            if Message.WHERE in asked:
                self._connection.sendall(f"{os.environ[variables.ELASTIC]} {Message.WHERE} {position}\n".encode())
        except OSError:  # nobody has asked; or the launcher has gone, and this rank is about to
            return False
        return Message.READY in asked

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def public(name: str, value: Any) -> Any:
    """What a newcomer's script gets by a public name of the package: a place, and no collectives before it has joined."""
    place = {"get_rank": 0, "get_local_rank": 0, "get_size": 1, "get_local_size": 1}
    if name not in (*place, *_COLLECTIVE):
        return value

    @functools.wraps(value)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_newcomer():
            return value(*args, **kwargs)
        if name in place:
            return expected_place()[place[name]]
        refuse_newcomer(f"tnt.{name}")
        return None

    return call


def refuse_newcomer(call: str) -> None:
    """Raises UnsupportedError on a newcomer. call: of the script's, in which ranks communicate."""
    if is_newcomer():
        raise UnsupportedError(
            f"{call}: this rank joins a job that runs, and the others have made this call long ago. Only scripts whose ranks "
            "communicate in fit, or in functions of tnt.elastic.run or hvd.elastic.run, can get new ranks: use --elastic "
            "without --replacements and --max-ranks"
        )


_COLLECTIVE = frozenset(
    {*("all_gather", "all_reduce", "all_to_all", "broadcast", "broadcast_object", "broadcast_variables", "reduce_scatter")}
)
