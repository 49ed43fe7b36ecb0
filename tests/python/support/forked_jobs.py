"""Jobs as forks of a process that has imported TensorFlow once: without it, each rank of each test would import it anew.

`python forked_jobs.py SOCKET SESSION MODULE...` is that process. It ends with the process whose number is SESSION. For each
connection it takes one job: words, environment, folder and the three standard streams. A keeper is forked for it, and from the
keeper the launcher (whose ranks are forks in turn, by `--preload`) or one script. What a job leaves behind becomes the keeper's
child, however it has hidden.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from tarantella.cli import main as launcher
from tarantella.launcher.base.mark import running, state
from tarantella.launcher.start import preload
from tarantella.launcher.start.forked import ForkedRank

PR_SET_CHILD_SUBREAPER = 36
LAUNCHER, SCRIPT = "launcher", "script"
IMPORTED: set[str] = set()
"""Packages that a fork leaves as they are when it ends."""
GRAPHS_AS_TRACED = "TESTS_GRAPHS_AS_TRACED"
"""A variable of a job whose graphs TensorFlow runs without optimizing them."""
PATIENCE = 0.5
"""Seconds in which processes that have been told to end with the job may still do so, unless the job gives others."""


def take(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One job, as `request` has sent it, and the descriptors of its streams."""
    data, ancillary, _, _ = connection.recvmsg(16, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i")
    for _, _, content in ancillary:
        streams.frombytes(content[: len(content) - len(content) % streams.itemsize])
    size = int(data.decode())
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return json.loads(text), list(streams)


def request(connection: socket.socket, job: dict[str, Any], streams: list[int]) -> None:
    """Asks for a job. The connection gives two lines of JSON: its process id; exit code and the processes left behind."""
    text = json.dumps(job).encode()
    socket.send_fds(connection, [f"{len(text):16}".encode()], streams)
    connection.sendall(text)


def serve(path: str, session: int) -> None:
    """Takes jobs until the test session's process ends; each is kept by a fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers tell their outcome themselves
    session_ended = os.pidfd_open(session)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while select.select([listener, session_ended], [], [])[0] == [listener]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                os.close(session_ended)
                listener.close()
                keep(connection)
            connection.close()
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)  # the session's other servers may be removing it, too
    os._exit(0)


def keep(connection: socket.socket) -> None:
    """Runs a job to its end and tells how it was. Only the job's processes return from here."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.setsid()
    job, streams = take(connection)
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(job, streams)
        return
    with suppress(OSError):
        connection.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    for descriptor in streams:
        os.close(descriptor)
    ended = os.pidfd_open(pid)
    if select.select([connection, ended], [], [])[0] == [connection]:  # closed: the test does not want to know any more
        os.kill(pid, signal.SIGTERM)  # the launcher ends its ranks
        if not select.select([ended], [], [], 5)[0]:
            os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = left_behind(job.get("patience", PATIENCE))
    with suppress(OSError):
        connection.sendall(json.dumps({"code": code, "left": left}).encode() + b"\n")
    os._exit(0)


def left_behind(patience: float) -> list[int]:
    """The processes that run though the job has ended, which end here."""
    deadline = time.monotonic() + patience
    while (left := children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def children() -> list[int]:
    """The processes whose parent this is, by now."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if running(pid) and state(pid)[1:2] == [str(os.getpid())]]


def become(job: dict[str, Any], streams: list[int]) -> None:
    """Makes this process the launcher or the script, and leaves its stack to it."""
    os.setsid()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_DFL)
    os.chdir(job["folder"])
    environment, words = job["environment"], job["words"]
    if environment.get(GRAPHS_AS_TRACED):
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if job["kind"] == SCRIPT:
        preload.preloaded().require(environment)
        inherited = frozenset(preload.preloaded().descriptors)
        raise ForkedRank(words, None, environment, streams, inherited, set())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, source in enumerate(streams):
        os.dup2(source, descriptor)
        os.close(source)
    os.environ.clear()
    os.environ.update(environment)
    raise Launch(words)


def keep_modules() -> None:
    """Lets a fork end without deleting what was imported before it: each object would first be copied from the parent's memory.

    That takes 0.15 s of computing. Tarantella's own modules are deleted, so that its leaks are reported, as are the script's.
    """
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in IMPORTED}
    for name in kept:
        del sys.modules[name]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


class Launch(BaseException):
    """Raised in a fork that is to be the launcher."""


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)  # the allocator of this process and its forks, not of the programs that they start
    atexit.register(keep_modules)  # runs last, as the first that is registered
    preload.load(sys.argv[3:], [__file__])
    IMPORTED.update({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__", "tarantella"})
    try:
        serve(sys.argv[1], int(sys.argv[2]))
    except ForkedRank as forked:
        script = forked
    except Launch as launch:
        code = launcher(list(launch.args[0]))
        sys.stdout.flush()
        os._exit(code)  # the end of an interpreter with TensorFlow takes 0.2 s, which are no launcher's outside of these tests
    script.run()
