"""This process as a rank: it joins and leaves the job, and knows its place in it.

The process joins at the first call that needs its rank. Without the launcher, mpirun or srun the job is this process alone:
everything works, on one rank. The processes that a rank starts, by a fork or as programs, are no ranks: their calls are
refused, and nothing that they do, nor how they end, touches the job.
"""

import atexit
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from types import TracebackType

from tarantella import _native, reporting, settings, threads, variables
from tarantella.environment import in_job, join_address
from tarantella.errors import TarantellaError

logger = logging.getLogger("TNT_LIB")

_world: _native.Communicator | None = None
_at_entry: list[Callable[[], None]] = []
_at_exit: list[Callable[[], None]] = []
_handler: logging.Handler | None = None  # of the logger, unless the script has one of its own
_has_hooks = False  # whether this process has those that a rank needs once, however often it joins


def world() -> _native.Communicator:
    """The communicator of all ranks; joins the job if that has not happened yet.

    Raises:
        UnsupportedError: this is a program that a rank has started, such as a worker of `multiprocessing`.
    """
    global _world, _has_hooks
    if _world is None:
        if in_job() and not _has_hooks:
            reporting.install()
            _abort_by_uncaught_exceptions()
        for action in _at_entry:
            action()
    if _world is None:
        _native.init()
        _world = _native.Communicator.world()
        _tell_launcher_of_joining(os.environ.get(variables.ELASTIC, str(_world.rank)))
        _configure_logging(_world.rank)
        if crowding := threads.crowding(_world.local_size):
            logger.warning(crowding)
        if not _has_hooks:
            atexit.register(_leave_at_exit, os.getpid())
        _has_hooks = True
        if in_job():
            reporting.keep_from_programs()
            os.environ[variables.JOINED] = f"{_world.rank} {os.getpid()}"
    return _world


def before_joining(action: Callable[[], None]) -> None:
    """Runs the action when this process is about to join the job. It may have joined when the action returns."""
    _at_entry.append(action)


def before_leaving(action: Callable[[], None]) -> None:
    """Runs the action whenever this process leaves the job, to release objects that need the job."""
    _at_exit.append(action)


def leave() -> None:
    """Leaves the job, if this process has joined it. The next call that needs the job joins it again."""
    global _world
    for action in reversed(_at_exit):
        action()
    _world = None
    _native.finalize()


def _leave_at_exit(pid: int) -> None:
    if os.getpid() != pid:  # a fork of the rank is not the rank
        return
    try:
        leave()
    except TarantellaError as error:
        print(f"tarantella: {error}", file=sys.stderr)


def _configure_logging(rank: int) -> None:
    global _handler
    logger.setLevel(settings.log_level())
    if not logger.handlers:
        _handler = logging.StreamHandler()
        logger.addHandler(_handler)
        logger.propagate = False
    if _handler is not None:
        _handler.setFormatter(logging.Formatter(f"tarantella[{rank}]: %(levelname)s: %(message)s"))
        is_silent = rank != 0 and not settings.on_all_ranks("log")
        _handler.setLevel(logging.CRITICAL + 1 if is_silent else logging.NOTSET)


def _abort_by_uncaught_exceptions() -> None:
    """An exception that ends this rank's script aborts the job: the waits of the other ranks fail with its text."""
    previous = sys.excepthook
    rank = os.getpid()

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        previous(kind, value, traceback)
        if os.getpid() != rank:  # the script of a fork of the rank, which is not the rank's
            return
        if _world is not None:
            _world.abort(f"the script ended with {reporting.described(value)}")

    sys.excepthook = hook


def _tell_launcher_of_joining(number: str) -> None:
    """The launcher warns if no rank joins. It is told on a socket, which also a grandchild of the launcher's reaches."""
    launcher = os.environ.get(variables.LAUNCHER)
    if launcher is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice, contextlib.suppress(OSError):  # on another host
        notice.sendto(number.encode(), socket.MSG_DONTWAIT, join_address(launcher))


def get_rank() -> int:
    """The rank of this process, from 0."""
    return world().rank


def get_size() -> int:
    """How many ranks the job has; 1 without a launcher."""
    return world().size


def get_local_rank() -> int:
    """The rank among those on this machine, from 0."""
    return world().local_rank


def get_local_size() -> int:
    """How many ranks of the job run on this machine."""
    return world().local_size


def get_master_rank() -> int:
    """The rank that writes files and shows progress: 0."""
    return 0


def is_master_rank() -> bool:
    """Whether this process is the one that writes files and shows progress.

    Examples:
        >>> if tnt.is_master_rank():
        ...     print("only once, however many ranks there are")
    """
    return variables.NEWCOMER not in os.environ and get_rank() == get_master_rank()


def shows_output() -> bool:
    """Whether this rank shows progress: the master does, and the others if they were asked to.

    With --elastic all do, as any may become the master: the launcher passes on what the master writes.
    """
    return is_master_rank() or settings.on_all_ranks("output") or variables.ELASTIC in os.environ
