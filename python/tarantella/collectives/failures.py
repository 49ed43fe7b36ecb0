"""A call that fails on some ranks only: the others learn of it, though they wait in collectives of other communicators."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tarantella import reporting, runtime, settings
from tarantella.errors import TarantellaError

PATIENCE = 5.0
"""Seconds in which ranks that fail alike do so: they did the same work until then."""
_TAG = 0x6661696C
_TEXT = 600


@contextmanager
def failing_together(call: str) -> Iterator[None]:
    """All ranks make this call. One that fails alone ends the job's communication, whatever its script does with the error.

    The others may wait for that rank, and a script that catches the error and goes on would leave them waiting until the
    deadline. If all ranks fail, no communication ends, and scripts may catch their errors and go on.

    Args:
        call: such as ``"tnt.Model.fit"``.
    """
    try:
        yield
    except Exception as error:
        if runtime.get_size() > 1:
            _end_unless_all_fail(f"{call} failed with {_in_one_line(reporting.described(error))}")
        raise


def _end_unless_all_fail(reason: str) -> None:
    """Waits for the other ranks to come here, too, and ends the communication if they do not."""

    def meet() -> None:
        with contextlib.suppress(TarantellaError):  # communication has ended, and the other ranks know why
            world.create_group(list(range(world.size)), _TAG).barrier()

    world = runtime.world()
    meeting = threading.Thread(target=meet, name="tnt failure", daemon=True)
    meeting.start()
    meeting.join(min(PATIENCE, settings.timeout() / 2))
    if meeting.is_alive():
        world.abort(reason)
        meeting.join()


def _in_one_line(text: str) -> str:
    """The text without TensorFlow's list of the places where an operation was made, from its end if it is long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("File ", "Detected at", "Stack trace", "[[{{node"))]
    joined = " ".join(told)
    return joined if len(joined) <= _TEXT else f"{joined[: _TEXT // 2]} ... {joined[-_TEXT // 2 :]}"
