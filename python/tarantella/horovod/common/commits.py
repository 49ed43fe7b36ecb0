"""Committed states, which outlive a restart: in the folder that the launcher names, one file for each state of the script.

The first rank of each node writes it. After a restart the newest commit counts, on whatever node it is.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tarantella import collectives, runtime, variables
from tarantella.errors import TarantellaError
from tarantella.horovod.common import encoding

_NONE = -1
_places = itertools.count()


class CommitFile:
    """The file of one state: of the n-th that the script makes, so that the script finds it again after a restart."""

    def __init__(self) -> None:
        self._name = f"state-{next(_places)}"
        self._number = 0

    def write(self, content: Callable[[], Any]) -> None:
        """Keeps what the function returns. Does nothing without a launcher that restarts.

        Raises:
            TypeError: something in it can stand in no file. TarantellaError: the folder is somebody else's.
        """
        self._number += 1
        folder = os.environ.get(variables.COMMITS)
        if folder is None or runtime.get_local_rank() != 0:
            return
        data, failure = encoding.encode({"number": self._number, "content": content()})
        if failure is not None:
            raise failure
        os.makedirs(folder, 0o700, exist_ok=True)
        path = _own(Path(folder)) / self._name
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").replace(path)  # a rank that is killed in the middle leaves the commit before

    def read(self) -> tuple[Any, int] | None:
        """The newest commit, or None where another node has it, and a rank that has it. None: there is none. Collective."""
        folder = os.environ.get(variables.COMMITS)
        kept = {"number": _NONE, "content": None}
        if folder is not None and Path(folder, self._name).exists():
            kept = encoding.decode((_own(Path(folder)) / self._name).read_bytes(), "the last commit")
        numbers = collectives.all_gather(np.array([kept["number"]], np.int64)).ravel()
        root = int(numbers.argmax())
        if numbers[root] == _NONE:
            return None
        self._number = int(numbers[root])
        return (kept["content"] if kept["number"] == self._number else None), root


def _own(folder: Path) -> Path:
    if folder.stat().st_uid != os.geteuid():
        raise TarantellaError(f"{folder} belongs to somebody else: no commit is kept there")
    return folder
