"""The training runs of `ranks/equivalence.py`: started once in a session, and read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from support import catalogue
from support.launch import RANKS, run_alone, run_ranks

SCRIPT = RANKS / "equivalence.py"
TIMEOUT = 240
AT_ONCE = 25  # cases in a job: it shall end in time on a busy machine, and starting one takes seconds


class Outcomes:
    """What the cases of one job left in its folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size

    def digests(self, name: str) -> list[str]:
        """One for each rank: equal if their outcomes are, to the last bit."""
        ends = [json.loads((self.folder / f"{name}.{rank}.json").read_text()) for rank in range(self.size)]
        errors = [f"rank {rank}: {end['error']}" for rank, end in enumerate(ends) if "error" in end]
        assert not errors, "\n".join(errors)
        return [end["digest"] for end in ends]

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Rank 0's outcome by name, such as ``logs/val_loss``."""
        self.digests(name)
        with np.load(self.folder / f"{name}.npz") as saved:
            return {key.replace("|", "/"): saved[key] for key in saved.files}


class Jobs:
    """Trains each case plainly, once, and on each number of ranks when somebody asks for that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[str, Outcomes] = {}
        self._pool = ThreadPoolExecutor(1)
        self._serial: Future[Outcomes] | None = None

    def serial(self) -> Outcomes:
        """Plain Keras; computed beside the first of the other jobs, as it keeps one core busy only."""
        if self._serial is None:
            self._serial = self._pool.submit(self._train_serial)
        return self._serial.result()

    def case(self, size: int, name: str) -> Outcomes:
        """`tnt.Model` on so many ranks, in a job with others of the catalogue's cases."""
        cases = catalogue.cases(size)
        begin = cases.index(name) // AT_ONCE * AT_ONCE
        return self.ranks(size, cases[begin : begin + AT_ONCE])

    def ranks(self, size: int, cases: Sequence[str], options: Sequence[object] = ()) -> Outcomes:
        """`tnt.Model` on so many ranks, one case after the other."""
        if self._serial is None:
            self._serial = self._pool.submit(self._train_serial)
        key = " ".join(map(str, [size, *cases, *options]))
        if key not in self._done:
            folder = self._folder / f"{len(self._done)}-on-{size}"
            folder.mkdir()
            run_ranks(size, SCRIPT, folder, *cases, timeout=TIMEOUT, launcher_options=options).good()
            self._done[key] = Outcomes(folder, size)
        return self._done[key]

    def close(self) -> None:
        self._pool.shutdown()

    def _train_serial(self) -> Outcomes:
        folder = self._folder / "serial"
        folder.mkdir()
        run_alone(SCRIPT, folder, "--serial", *catalogue.all_cases(), timeout=2 * TIMEOUT).good()
        return Outcomes(folder, 1)
