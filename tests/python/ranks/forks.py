"""Rank 1 starts processes in all ways, which end in all ways, while the other ranks wait for it in a collective. No TensorFlow.

forks.py FOLDER

Each rank writes what it found to `RANK.json` in the folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tarantella as tnt

ENDINGS = ("sys.exit(0)", "sys.exit(3)", "os._exit(0)", "raise", "SIGKILL", "exec")
JOIN = "import tarantella as tnt; tnt.get_rank()"


class Fork(BaseException):
    """Takes a fork out of all functions, to the end of the script."""


def said_in_fork(action: Callable[[], object]) -> str:
    """What a fork of this process says of the action: its result, or the class and text of its error."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = json.dumps(action())
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writes, text.encode())
        os._exit(0)
    os.close(writes)
    with open(reads) as file:
        text = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text.replace(str(pid), "FORK").replace(str(os.getpid()), "RANK")


def ending_of_fork(how: str) -> int:
    """The wait status of a fork that ends like this."""
    pid = os.fork()
    if pid == 0:
        raise Fork(how)
    return os.waitpid(pid, 0)[1]


def end(how: str) -> None:
    """The end of a fork, as that of any script."""
    if how == "raise":
        raise ValueError("of a fork")
    if how == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exec":
        os.execv(sys.executable, [sys.executable, "-c", ""])
    if how.startswith("os._exit"):
        os._exit(0)
    sys.exit(3 if "3" in how else 0)


def square(number: int) -> int:
    return number * number


def refused_in_worker(_: int) -> str:
    """What a worker says of the rank's job: a fork knows its rank, a new program does not."""
    try:
        tnt.all_reduce(np.ones(1))
    except tnt.TarantellaError as error:
        return type(error).__name__
    return "it takes part in a collective"


def workers(method: str) -> Any:
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(square, range(3)), pool.map(refused_in_worker, [0])


def executor() -> list[int]:
    """Its workers still run at the end of the script."""
    pools.append(ProcessPoolExecutor(1, multiprocessing.get_context("fork")))
    return list(pools[0].map(square, range(3)))


def program(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1] if done.stderr else ""
    return done.returncode, last.replace(str(os.getpid()), "RANK")


def main(folder: str) -> None:
    found: dict[str, Any] = {}
    sums = []

    def alone(name: str, action: Callable[[], Any]) -> None:
        """On rank 1; then a collective of all ranks, in which the others have waited for it."""
        if tnt.get_rank() == 1:
            found[name] = action()
        sums.append(tnt.all_reduce(np.full(1000, tnt.get_rank() + 1.0)).tolist())

    alone("first collective", lambda: said_in_fork(lambda: tnt.all_reduce(np.full(1000, 5.0)).tolist()))
    alone("another collective", lambda: said_in_fork(lambda: tnt.all_reduce(np.full(1000, 5.0)).tolist()))
    alone("object", lambda: said_in_fork(lambda: tnt.broadcast_object({"a": 1})))
    alone("place", lambda: said_in_fork(lambda: [tnt.get_rank(), tnt.get_size(), tnt.get_local_rank(), tnt.is_master_rank()]))
    for how in ENDINGS:
        alone(how, lambda how=how: ending_of_fork(how))
    alone("fork", lambda: workers("fork"))
    alone("spawn", lambda: workers("spawn"))
    alone("executor", executor)
    alone("program", lambda: program("print()"))
    alone("program that joins", lambda: program(JOIN))
    found["sums"] = sums
    Path(folder, f"{tnt.get_rank()}.json").write_text(json.dumps(found))


pools: list[ProcessPoolExecutor] = []
if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Fork as fork:
        ended = str(fork)
    else:
        ended = ""
    if ended:
        end(ended)
