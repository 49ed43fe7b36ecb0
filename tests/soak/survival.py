"""A training is killed at random moments and started again with other numbers of ranks until it ends: the bits must be right.

    python tests/soak/survival.py --runs 100 --seed 1 [--ranks 1,2,4] [--kills 3]

Each run starts `training.py` anew. Each of its starts but the last is ended in a random way at a random moment, the last one
may finish. Checked are, for every run: the final weights and optimizer state are the bits of the training that nobody has
touched; after each start, the newest checkpoint that was complete before is still there, or a newer one, and the next start
goes on from it or a newer one; and nothing is left: no process, nothing in /dev/shm, no temporary file. Exit code 1 if
anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FILE_BYTES = "SURVIVAL_FILE_BYTES"
TRAINING = Path(__file__).with_name("training.py")
MARK = "TARANTELLA_SURVIVAL"
CHECKPOINT = re.compile(r"fit(\d+)-step(\d+)\.npz")
SHARDS = 8
START_SECONDS = 300
END_SECONDS = 60
GONE_SECONDS = 15
WAYS = ("kill a rank", "kill a rank, with restarts", "kill the launcher", "kill all", "terminate the launcher", "fill the disk")


class Wrong(Exception):
    """A promise is broken; the text says which."""


@dataclass
class Reference:
    """The training that nobody has touched."""

    digest: str
    seconds: float
    checkpoint_bytes: int


class Start:
    """One start of the training, of a run."""

    def __init__(self, folder: Path, ranks: int, epochs: int, options: Sequence[object] = ()) -> None:
        self._mark = uuid.uuid4().hex
        self._log = (folder / "log").open("ab")
        words = ["-n", ranks, "--reproducible", SHARDS, *options, "--", TRAINING, folder, folder / "result", epochs]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
        self.launcher = subprocess.Popen(
            [sys.executable, "-m", "tarantella", *map(str, words)],
            cwd=folder,
            env={**inherited, MARK: self._mark, "TF_CPP_MIN_LOG_LEVEL": "2", "TNT_TIMEOUT": "60"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def ranks(self) -> list[int]:
        """The processes of the job beside the launcher's two."""
        return [pid for pid in self.processes() if b"TNT_RANK=" in _environment(Path(f"/proc/{pid}"))]

    def processes(self) -> list[int]:
        """All that run."""
        return processes_with(MARK, self._mark)

    def wait(self, seconds: float) -> int | None:
        """The launcher's exit code; None if it still runs."""
        try:
            return self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Whatever still runs; raises Wrong if something does though the launcher has ended."""
        self._log.close()
        launcher_runs = self.launcher.poll() is None
        deadline = time.monotonic() + GONE_SECONDS
        while not launcher_runs and self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait()
        if launcher_runs:
            raise Wrong("the launcher has not ended")
        if left:
            raise Wrong(f"{len(left)} processes are left {GONE_SECONDS} s after the launcher")


def processes_with(variable: str, value: str) -> list[int]:
    """The processes that run and have the variable in their environment."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _runs_with(entry, variable, value)]


def _runs_with(entry: Path, variable: str, value: str) -> bool:
    try:
        has_it = f"{variable}={value}".encode() in _environment(entry)
        return has_it and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # gone meanwhile
        return False


def _environment(entry: Path) -> bytes:
    """Of a process, given its folder; empty if it has gone, or is another user's."""
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""


class Run:
    """A training from its first start to its end."""

    def __init__(self, folder: Path, chance: random.Random, reference: Reference, ranks: Sequence[int], epochs: int) -> None:
        self._folder = folder
        self._chance = chance
        self._reference = reference
        self._ranks = ranks
        self._epochs = epochs
        self.told: list[str] = []

    def go(self, kills: int) -> None:
        """Raises Wrong."""
        for _ in range(self._chance.randint(1, kills)):
            if self._started(self._chance.choice(WAYS)):
                return
        if not self._started(None):
            raise Wrong("a start that nobody has touched has not finished")

    def _started(self, way: str | None) -> bool:
        """One start. Returns whether the training is over."""
        ranks = self._chance.choice(self._ranks)
        options: dict[str | None, list[object]] = {
            "kill a rank, with restarts": ["--max-restarts", 1, "--min-ranks", 1],
            "fill the disk": ["-x", f"{FILE_BYTES}={self._reference.checkpoint_bytes // 2}"],
        }
        before, starts = newest(self._folder), len(begun(self._folder))
        self.told.append(f"{ranks} ranks from step {before}, {way or 'untouched'}")
        start = Start(self._folder, ranks, self._epochs, options.get(way, ()))
        try:
            if way is not None and way != "fill the disk":
                self._at_a_random_moment(start)
                _end_by(way, start, self._chance)
            code = start.wait(START_SECONDS if way in (None, "fill the disk", "kill a rank, with restarts") else END_SECONDS)
            seen = newest(self._folder)
        finally:
            start.end()
        self.told[-1] += f": code {code}, checkpoint {seen}"
        if newest(self._folder) < max(before, seen):
            raise Wrong(f"checkpoint {max(before, seen)} is lost: the newest is {newest(self._folder)}")
        for step in begun(self._folder)[starts : starts + 1]:
            if step < before:
                raise Wrong(f"went on with step {step} though checkpoint {before} was complete")
        return self._is_over(code)

    def _is_over(self, code: int | None) -> bool:
        result = self._folder / "result"
        if not result.exists():
            if code == 0:
                raise Wrong("ended well without a result")
            return False
        if result.read_text() != self._reference.digest:
            raise Wrong("other bits than those of the training that nobody has touched")
        beside = [path.name for path in self._folder.rglob("*.part")]
        if beside:
            raise Wrong(f"temporary files are left: {', '.join(beside)}")
        return True

    def _at_a_random_moment(self, start: Start) -> None:
        """While it starts, or around the time when a checkpoint is written, or anywhere."""
        kind = self._chance.randrange(3)
        if kind == 0:
            deadline = time.monotonic() + self._chance.uniform(0, 1.2 * self._reference.seconds)
            until: Callable[[], bool] = lambda: False  # noqa: E731
        else:
            deadline = time.monotonic() + 3 * self._reference.seconds
            step = newest(self._folder) + self._chance.randint(1, 12)
            until = lambda: newest(self._folder) >= step  # noqa: E731
        while time.monotonic() < deadline and not until() and start.launcher.poll() is None:
            time.sleep(0.002)
        if kind == 2:
            time.sleep(self._chance.uniform(0, 0.2))


def _end_by(way: str, start: Start, chance: random.Random) -> None:
    with contextlib.suppress(ProcessLookupError):
        if way.startswith("kill a rank"):
            ranks = start.ranks()
            if ranks:
                os.kill(chance.choice(ranks), signal.SIGKILL)
        elif way == "kill the launcher":
            start.launcher.kill()
        elif way == "terminate the launcher":
            start.launcher.terminate()
        elif way == "kill all":
            for pid in start.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def newest(folder: Path) -> int:
    """The step of the newest complete checkpoint; 0 without one."""
    found = [CHECKPOINT.fullmatch(path.name) for path in folder.glob("checkpoints/*")]
    return max((int(match[2]) for match in found if match), default=0)


def begun(folder: Path) -> list[int]:
    """With which step each start that came to train has gone on."""
    path = folder / "begun"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _shared_memory() -> set[str]:
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if "tarantella" in name or "tnt" in name}


@contextlib.contextmanager
def _nothing_left_in_shared_memory() -> Iterator[None]:
    before = _shared_memory()
    yield
    left = _shared_memory() - before
    if left:
        raise Wrong(f"left in /dev/shm: {', '.join(sorted(left))}")


def reference(folder: Path, ranks: int, epochs: int) -> Reference:
    """Trains without a kill. Raises Wrong."""
    begin = time.monotonic()
    start = Start(folder, ranks, epochs)
    try:
        code = start.wait(START_SECONDS)
    finally:
        start.end()
    if code != 0:
        raise Wrong(f"the training has failed with code {code} before anything was killed:\n{(folder / 'log').read_text()}")
    sizes = [path.stat().st_size for path in folder.glob("checkpoints/*.npz")]
    return Reference((folder / "result").read_text(), time.monotonic() - begin, max(sizes))


def survive(runs: int, seed: int, ranks: Sequence[int], kills: int, epochs: int, say: Callable[[str], None]) -> int:
    """Returns how many runs went wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="survival-") as top:
        untouched = Path(top, "untouched")
        untouched.mkdir()
        found = reference(untouched, ranks[0], epochs)
        say(f"untouched on {ranks[0]} ranks: {found.seconds:.1f} s, checkpoints of {found.checkpoint_bytes / 1e6:.1f} MB")
        for number in range(runs):
            folder = Path(top, f"run{number}")
            folder.mkdir()
            run = Run(folder, random.Random(f"{seed}/{number}"), found, ranks, epochs)
            try:
                with _nothing_left_in_shared_memory():
                    run.go(kills)
                ended = "ok"
            except Wrong as error:
                wrong += 1
                ended = f"WRONG: {error}\n{(folder / 'log').read_text()}"
            say(f"run {number + 1} of {runs}: {'; '.join(run.told)}: {ended}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", default="1,2,4", help="the numbers of ranks to choose from, divisors of 8 (default: 1,2,4)")
    parser.add_argument("--kills", type=int, default=3, help="the most kills in a run (default: 3)")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    ranks = [int(number) for number in given.ranks.split(",")]
    wrong = survive(given.runs, given.seed, ranks, given.kills, given.epochs, lambda text: print(text, flush=True))
    print(f"{given.runs - wrong} of {given.runs} runs ended with the right bits, lost no checkpoint and left nothing behind")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
