"""The generations of an elastic job: after ranks were lost, the others leave it and join its next generation.

The launcher (`--elastic`) forms it: it knows which ranks run (`launcher/watch/generations.py`). Communicators and what was made
of them belong to a generation, and are made anew when they are needed.
"""

import json
import os
import socket

from tarantella import runtime, variables
from tarantella.environment import elastic_address
from tarantella.errors import AbortedError, DeadlineError, PeerLostError, TarantellaError, from_message

_LOST = (PeerLostError, DeadlineError, AbortedError)
_BYTES = 4096


def is_elastic() -> bool:
    """Whether the job goes on when ranks are lost."""
    return variables.ELASTIC in os.environ


def is_loss(error: BaseException) -> bool:
    """Whether communication has ended, as it does when a rank is lost. The launcher knows whether one was."""
    found = error if isinstance(error, TarantellaError) else from_message(str(error))
    return isinstance(found, _LOST)


def join_next() -> bool:
    """Leaves the job, and joins its next generation. Returns when all ranks of it have joined.

    Returns:
        Whether there is one. False: the launcher has ended, or ends the job.
    """
    while True:
        runtime.leave()
        answer = _ask()
        if answer is None:
            return False
        os.environ.update(answer)
        os.environ.pop(variables.JOINED, None)
        try:
            runtime.world()
        except TarantellaError as error:  # one more was lost while they joined
            if not is_loss(error):
                raise
            continue
        return True


def _ask() -> dict[str, str] | None:
    """The variables of `variables.OF_PLACE` in the next generation."""
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(elastic_address(os.environ[variables.LAUNCHER]))
            connection.sendall(f"{os.environ[variables.ELASTIC]}\n".encode())
            while data := connection.recv(_BYTES):
                received += data
        except OSError:
            return None
    return json.loads(received) if received else None
