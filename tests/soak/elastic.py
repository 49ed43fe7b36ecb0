"""Ranks of an elastic job are lost at random moments, and others start in their places: the bits must be right in the end.

    python tests/soak/elastic.py --seconds 120 --seed 1 [--ranks 4] [--epochs 15] [--ways killed,terminated]

Each round is one job with `--elastic --replacements`; there is one at least. Ranks are killed, terminated or stopped, one or
several at once, whenever as many run as in the beginning; rank 0, ranks that have not joined yet, and newcomers on their way
are among them. Checked are, for every round: the exit code, and the SHA-256 of weights, optimizer state, and the history on
every rank that is left against the job that nobody has touched. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/python/ranks/keras/elastic.py"
JOB_SECONDS = 300
WAYS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "stopped": signal.SIGSTOP}


class Job:
    """One job, and what its launcher says."""

    def __init__(self, folder: Path, ranks: int, epochs: int) -> None:
        words: list[object] = ["-n", ranks, "--reproducible", 8, "--elastic", "--replacements", 1000, "--"]
        words += [SCRIPT, folder, "", "batch_norm", "dropout", "decay", "slow", f"epochs={epochs}"]
        path = os.pathsep.join(str(ROOT / part) for part in ("tests/python/ranks", "tests/python"))
        env = {**os.environ, "PYTHONPATH": path, "TNT_TIMEOUT": "20"}  # seconds after which a stopped rank is lost
        command = [sys.executable, "-m", "tarantella", *map(str, words)]
        self.folder, self.ranks = folder, ranks
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def complete(self) -> int:
        """How often all ranks were there."""
        return sum(f"ranks by now: {self.ranks}" in line for line in self.said)

    def living(self) -> list[int]:
        """The processes of ranks: each leads a session, and is no launcher, whose children do."""
        tree: dict[int, list[int]] = {}
        parents = [self.process.pid]
        for parent in parents:
            tasks = Path(f"/proc/{parent}/task").glob("*")
            tree[parent] = [int(child) for task in tasks for child in (task / "children").read_text().split()]
            parents += tree[parent]
        leaders = {pid for pid in tree if os.getsid(pid) == pid}
        return sorted(pid for pid in leaders if leaders.isdisjoint(tree[pid]) and pid != self.process.pid)

    def outcome(self) -> dict[int, dict[str, Any]]:
        """What each rank that is left has found. Raises if the job has failed."""
        code = self.process.wait(JOB_SECONDS)
        self._reader.join()
        if code != 0:
            raise RuntimeError(f"exit code {code}")
        return {int(file.stem): json.loads(file.read_text()) for file in self.folder.glob("*.json")}


def disturb(job: Job, chance: random.Random, times: int, ways: list[str]) -> Counter[str]:
    """Takes ranks away, so many times or until the job ends. Returns how."""
    done: Counter[str] = Counter()
    while times > 0 and job.process.poll() is None:
        time.sleep(chance.uniform(0, 4))
        try:
            living = job.living()
        except OSError:  # one has ended just now
            continue
        lost = chance.sample(living, min(chance.choice([1, 1, 1, 2, 3]), max(len(living) - 1, 0)))
        if not lost or len(living) < job.ranks:
            continue
        times -= 1
        before, way = job.complete(), chance.choice(ways)
        for pid in lost:
            try:
                os.kill(pid, WAYS[way])
            except ProcessLookupError:
                continue
            done[way] += 1
        since = time.monotonic()
        while job.complete() == before and job.process.poll() is None and time.monotonic() - since < 120:
            time.sleep(0.1)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    given = parser.parse_args()
    chance, begin, wrong, rounds = random.Random(given.seed), time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name, "undisturbed")).mkdir()
        expected = Job(folder, given.ranks, given.epochs).outcome()[0]
        while rounds == 0 or time.monotonic() - begin < given.seconds:
            rounds += 1
            (folder := Path(name, str(rounds))).mkdir()
            job = Job(folder, given.ranks, given.epochs)
            done = disturb(job, chance, chance.randint(1, 5), given.ways)
            try:
                found = job.outcome()
                faults = [
                    rank for rank, one in found.items() if any(one[key] != expected[key] for key in ("digest", "history"))
                ]
                fault = f"other bits on {faults}" if faults or not found else ""
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                fault = str(error)
                job.process.kill()
            wrong += bool(fault)
            how = ", ".join(f"{number} {way}" for way, number in done.items()) or "nothing"
            print(f"round {rounds}: {how}; complete again {job.complete()} times: {fault or 'the same bits'}", flush=True)
            if fault:
                print("".join(job.said), flush=True)
    print(f"{rounds} rounds, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
