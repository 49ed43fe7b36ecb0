"""The training runs of `ranks/equivalence.py`: started once in a session, and read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from support import catalogue
from support.launch import RANKS, run_alone, run_ranks

SCRIPT = RANKS / "keras/equivalence/equivalence.py"
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
    """Trains each case plainly, once, and on each number of ranks when somebody asks for that.

    Args:
        cases: those for a number of ranks.
        env: what all processes find in their environment.
    """

    def __init__(
        self,
        folder: Path,
        cases: Callable[[int], list[str]] = catalogue.cases,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._cases = cases
        self._env = env
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
        cases = self._cases(size)
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
            run_ranks(size, SCRIPT, folder, *cases, timeout=TIMEOUT, env=self._env, launcher_options=options).good()
            self._done[key] = Outcomes(folder, size)
        return self._done[key]

    def same_bits(self, size: int, name: str) -> None:
        """All ranks have the same outcome."""
        digests = self.case(size, name).digests(name)
        assert len(digests) == size
        assert len(set(digests)) == 1, digests

    def same_losses_and_metrics(self, size: int, name: str) -> None:
        """As plain Keras has them: all of the outcome but weights."""
        ours, truth = self.case(size, name).arrays(name), self.serial().arrays(name)
        assert ours.keys() == truth.keys()
        expected = catalogue.expected(name)
        for key in truth:
            if "weights" not in key.split("/"):
                np.testing.assert_allclose(ours[key], truth[key], rtol=expected.losses, atol=1e-6, err_msg=key)

    def same_weights(self, size: int, name: str) -> None:
        """As plain Keras has them."""
        ours, truth = self.case(size, name).arrays(name), self.serial().arrays(name)
        keys = [key for key in truth if "weights" in key.split("/")]
        assert keys
        for key in keys:
            assert np.isfinite(ours[key]).all(), key
            np.testing.assert_allclose(ours[key], truth[key], rtol=0, atol=catalogue.expected(name).weights, err_msg=key)

    def close(self) -> None:
        self._pool.shutdown()

    def _train_serial(self) -> Outcomes:
        folder = self._folder / "serial"
        folder.mkdir()
        names = catalogue.cases_of_all_sizes(self._cases)
        run_alone(SCRIPT, folder, "--serial", *names, timeout=2 * TIMEOUT, env=self._env).good()
        return Outcomes(folder, 1)
