"""Commands with a deadline and captured output; and jobs of several ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tarfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "gpu"
LOGS = BUILD / "log"
SECONDS = 530  # for everything: less than nine minutes
KEPT_LINES = 12  # of what a failed command said

Line = dict[str, Any]


class Skipped(Exception):
    """A part cannot run here, for the reason in the text."""


class Failed(Exception):
    """A part failed, as the text describes."""


@dataclass
class Clock:
    """The remaining time."""

    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def limit(self, seconds: float) -> float:
        left = self.end - time.monotonic()
        if left < 5:
            raise Skipped(f"the {SECONDS} seconds of a run are over; run this part alone")
        return min(seconds, left)


def pack_logs(results: Path) -> None:
    """Everything that the commands said, beside the results: a log on a machine that is given back is lost."""
    if LOGS.is_dir():
        with tarfile.open(results.with_suffix(".logs.tar.gz"), "w:gz") as archive:
            archive.add(LOGS, LOGS.name)


def kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own


def start(command: Sequence[object], log: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    words = [str(word) for word in command]
    with log.open("w") as said:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env={**os.environ, **env}, start_new_session=True,
        )  # fmt: skip


def end_of(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and not line.startswith("{")]
    return "\n".join(f"    {line}" for line in lines[-KEPT_LINES:]) + f"\n    (all of it: {log})"


def call(name: str, command: Sequence[object], seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Runs it to its end and returns its output; raises Failed unless it succeeds."""
    return job(name, 1, command, seconds, lambda _: env or {})


def job(name: str, ranks: int, command: Sequence[object], seconds: float, env_of: Callable[[int], Mapping[str, str]]) -> str:
    """The same on several ranks; returns the output of rank 0. If one fails, the others are ended."""
    LOGS.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex
    rendezvous = {"TNT_RENDEZVOUS": f"tnt-gpu-check-{token}", "TNT_TOKEN": token}
    job = {"TNT_SIZE": str(ranks), **rendezvous, "TNT_TIMEOUT": "60"}
    logs = [LOGS / (f"{name}.log" if ranks == 1 else f"{name}-{rank}.log") for rank in range(ranks)]
    processes = []
    for rank, log in enumerate(logs):
        place = {**job, "TNT_RANK": str(rank)} if ranks > 1 else {}
        processes.append(start(command, log, {**place, **env_of(rank)}))
    deadline = time.monotonic() + seconds
    try:
        first_failure = wait_for(processes, deadline)
    finally:
        for process in processes:
            kill(process)
            process.wait()
    if first_failure is None:
        return logs[0].read_text(errors="replace")
    log = logs[first_failure]
    code = processes[first_failure].returncode
    how = f"was not done after {seconds:.0f} s" if time.monotonic() >= deadline else f"ended with code {code}"
    who = f"rank {first_failure} of {ranks}: " if ranks > 1 else ""
    raise Failed(f"{who}{Path(str(command[0])).name} {how}\n{end_of(log)}")


def wait_for(processes: Sequence[subprocess.Popen[str]], deadline: float) -> int | None:
    """The index of the process that failed first, or of one that did not end in time."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [index for index, code in enumerate(codes) if code not in (0, None)]
        if failed:
            return failed[0]
        if None not in codes:
            return None
        if time.monotonic() >= deadline:
            return codes.index(None)
        time.sleep(0.05)


def json_lines(said: str) -> list[Line]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]
