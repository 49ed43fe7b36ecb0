"""`tnt.launch`: runs a function on several ranks, from a notebook or a script that is no rank itself.

The ranks are fresh processes of a launcher of their own (`function_job.py`), so nothing that the caller has imported or
computed disturbs them. The function goes to them, and its values come back, in files of a temporary folder.
"""

import codecs
import json
import operator
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tarantella import environment
from tarantella.errors import DeadlineError, InvalidArgumentError, RankFailedError, TarantellaError, UnsupportedError
from tarantella.launcher.command_line.arguments import MAX_RANKS
from tarantella.launcher.command_line.devices import visible_gpus
from tarantella.launcher.start.own_program import own_program
from tarantella.launcher.start.results import JobResult

READ_BYTES = 64 * 1024
ENDING = 10.0
"""Seconds that the launcher gets to end the ranks."""


@dataclass(frozen=True)
class Folder:
    """Where the caller, the launcher and the ranks leave files for each other."""

    path: Path

    @property
    def function(self) -> Path:
        """The call of the ranks: see `Call`."""
        return self.path / "function"

    @property
    def job(self) -> Path:
        """How the job ended, in JSON: the fields of `JobResult`."""
        return self.path / "job.json"

    def value(self, rank: int) -> Path:
        """The value that the function returned on a rank."""
        return self.path / f"value-{rank}"

    def traceback(self, rank: int) -> Path:
        """The file with the traceback of the exception that the function raised on a rank."""
        return self.path / f"traceback-{rank}"

    def write_job(self, result: JobResult) -> None:
        self.job.write_text(json.dumps({**asdict(result), "killed": sorted(result.killed)}))

    def read_job(self) -> JobResult | None:
        """None if the launcher was killed."""
        if not self.job.exists():
            return None
        fields = json.loads(self.job.read_text())
        return JobResult(**{**fields, "killed": frozenset(fields["killed"])})


def launch(
    function: Callable[..., Any],
    n: int | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Runs a function on n ranks and returns what it returned on each of them.

    It is for notebooks, and for scripts that `tarantella -n` does not start. Each rank is a fresh process, as under
    ``tarantella -n``: TensorFlow may be imported here already, and what the function needs is imported by the ranks again. A
    function of a notebook or of ``__main__`` is sent with the globals that it uses (by cloudpickle), one of a module by its
    name. What rank 0 prints is shown here.

    Args:
        function: called with ``*args`` and ``**kwargs`` on every rank. Make models and datasets inside it: they are not sent.
        n: the number of ranks. None: one for each GPU of this machine, or one.
        args, kwargs: its arguments, the same on all ranks.
        timeout: seconds after which the ranks are ended; None: never.

    Returns:
        The values that the function returned, as a list by rank.

    Raises:
        RankFailedError: the function raised an exception on a rank, or a rank was killed. The text has the rank and its
            traceback. All ranks have ended.
        DeadlineError: the ranks took longer than `timeout`.
        InvalidArgumentError: an argument makes no sense, or the function cannot be sent.
        UnsupportedError: this process is a rank itself.

    Examples:
        >>> def train(epochs):
        ...     import keras
        ...     model = tnt.Model(keras.Sequential([keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        ...     return model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["loss"]
        >>> losses = tnt.launch(train, n=2, args=(3,))[0]
    """
    if environment.is_rank():
        raise UnsupportedError(
            "tnt.launch starts ranks, and this process is a rank already: call it from a process that was not started by "
            "tarantella, mpirun, srun or tnt.launch"
        )
    ranks = _checked_ranks(n)
    if timeout is not None and not timeout > 0:
        raise InvalidArgumentError(f"tnt.launch: timeout={timeout!r}: expected seconds above 0, or None")
    call = _pickled(function, args, kwargs)
    with tempfile.TemporaryDirectory(prefix="tarantella-launch-") as name:
        folder = Folder(Path(name))
        folder.function.write_bytes(call)
        code = _run(folder, ranks, timeout)
        return _values(folder, ranks, code)


def _checked_ranks(n: int | None) -> int:
    if n is None:
        return max(1, visible_gpus())
    if isinstance(n, bool) or not hasattr(n, "__index__") or not 1 <= operator.index(n) <= MAX_RANKS:
        raise InvalidArgumentError(f"tnt.launch: n={n!r}: expected a whole number of ranks from 1 to {MAX_RANKS}")
    return operator.index(n)


def _pickled(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bytes:
    """The call as `function_rank.py` reads it. The search path comes first: what follows may need it."""
    from tarantella.launcher.start import pickling

    if not callable(function):
        raise InvalidArgumentError(f"tnt.launch: {function!r} is not a function")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise InvalidArgumentError(f"tnt.launch: args={args!r}: expected a tuple, as in args=(1,)")
    search_path = [os.getcwd() if folder == "" else folder for folder in sys.path]
    parts = {"the function": function, "args": tuple(args), "kwargs": dict(kwargs or {})}
    pickled = [pickling.dumps((search_path, sys.argv))]
    for what, part in parts.items():
        try:
            pickled.append(pickling.dumps(part))
        except Exception as error:
            name = f" {getattr(function, '__name__', function)!r}" if part is function else ""
            raise InvalidArgumentError(
                f"tnt.launch: {what}{name} cannot be sent to the ranks: {type(error).__name__}: {error}: make what cannot be "
                "sent, such as models, datasets, files and locks, inside of the function"
            ) from error
    return b"".join(pickled)


class _Output:
    """The output of the launcher. It is written to `sys.stdout` and `sys.stderr`, which a notebook has replaced."""

    def __init__(self, launcher: subprocess.Popen[bytes]) -> None:
        self._launcher = launcher
        utf8 = codecs.getincrementaldecoder("utf-8")
        self._open = {getattr(launcher, name): (name, utf8("replace")) for name in ("stdout", "stderr")}
        for pipe in self._open:
            os.set_blocking(pipe.fileno(), False)

    def relay(self, timeout: float | None) -> bool:
        """Returns when the launcher has ended. False if it has not in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ended = os.pidfd_open(self._launcher.pid)  # a process that a rank has left behind may keep the pipes open
        try:
            while not select.select([ended], [], [], 0)[0]:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for pipe in select.select([ended, *self._open], [], [], left)[0]:
                    if pipe != ended:
                        self._copy(pipe)
        finally:
            os.close(ended)
        for pipe in list(self._open):
            while self._copy(pipe):
                pass
        return True

    def _copy(self, pipe: Any) -> bool:
        """Reads once. False if there is nothing more, or nothing just now."""
        name, decoder = self._open[pipe]
        try:
            data = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        text, stream = decoder.decode(data, final=not data), getattr(sys, name)
        if text and stream is not None:
            stream.write(text)
            stream.flush()
        if not data:
            del self._open[pipe]
        return bool(data)


def _run(folder: Folder, ranks: int, timeout: float | None) -> int:
    """Runs the launcher to its end, or ends it: after the timeout, or at an exception in this process such as Ctrl-C.

    Returns its exit code.
    """
    launcher = subprocess.Popen(
        own_program("launcher.function_job", str(folder.path), str(ranks), str(os.getpid())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at a terminal would reach it twice
    )
    with launcher:
        output = _Output(launcher)
        try:
            if not output.relay(timeout):
                _end(launcher, output, signal.SIGTERM)
                raise DeadlineError(f"tnt.launch: the ranks had not ended after timeout={timeout:g} s and were ended")
        except KeyboardInterrupt:
            _end(launcher, output, signal.SIGINT)
            raise
        except BaseException:
            _end(launcher, output, signal.SIGTERM)
            raise
    return launcher.returncode


def _end(launcher: subprocess.Popen[bytes], output: _Output, number: signal.Signals) -> None:
    if launcher.poll() is None:
        launcher.send_signal(number)
        try:
            output.relay(ENDING)
        finally:  # its ranks end with it
            launcher.kill()


def _values(folder: Folder, ranks: int, code: int) -> list[Any]:
    """The function's values on all ranks. Raises if it has not returned on all of them."""
    result = folder.read_job()
    if result is None:
        raise TarantellaError(f"tnt.launch: the launcher of the ranks ended with code {code} before it could tell how they did")
    if result.interrupted:
        raise TarantellaError("tnt.launch: the launcher of the ranks was told to end them")
    if result.code != 0:
        raise _failure(folder, result.failed, result.reason or "the ranks could not be started")
    missing = next((rank for rank in range(ranks) if not folder.value(rank).exists()), None)
    if missing is not None:
        raise _failure(folder, missing, f"rank {missing} ended before the function had returned")
    return [_value(folder, rank) for rank in range(ranks)]


def _value(folder: Folder, rank: int) -> Any:
    try:
        return pickle.loads(folder.value(rank).read_bytes())
    except Exception as error:
        reason = f"what rank {rank} returned cannot be read here: {type(error).__name__}: {error}"
        raise _failure(folder, rank, reason) from error


def _failure(folder: Folder, rank: int | None, reason: str) -> RankFailedError:
    traceback = ""
    if rank is not None and folder.traceback(rank).exists():
        traceback = folder.traceback(rank).read_text()
    error: RankFailedError = RankFailedError(f"tnt.launch: {reason}" + (f"\n\n{traceback}" if traceback else ""))
    error.rank, error.traceback = rank, traceback
    return error
