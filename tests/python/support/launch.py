"""Starts rank scripts under the launcher (or one process without it), with a deadline, and sees that nothing is left.

Jobs are forks of a process that has imported TensorFlow (`preloaded.py`), unless a test says that they shall start as a user's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent

from support import forked_jobs, preloaded_jobs
from support.preloaded_jobs import Outcome

LAUNCHER = [sys.executable, "-m", "tarantella"]
RANKS = Path(__file__).resolve().parents[1] / "ranks"
MARK = "TARANTELLA_TEST_JOB"
SLACK = 4  # a busy or slow machine takes this many times as long; deadlines in tests are those of a quiet one

# the same threads for every number of ranks: the order of sums inside an operation depends on them
DEFAULTS = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONHASHSEED": "0",  # as the launcher sets it for ranks, of which a job alone is a fork as well
    "TNT_TIMEOUT": "120",
    # the modules that scripts of all folders share: checks, recipes, training
    "PYTHONPATH": os.pathsep.join(filter(None, [str(RANKS), os.environ.get("PYTHONPATH")])),
}


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: tuple[str, ...]
    """Processes and shared-memory files of the job that were still there after it."""

    @property
    def said(self) -> str:
        """Everything that was printed, for the text of a failed assertion."""
        return f"code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"

    def good(self) -> Result:
        """This result, if all went well."""
        assert self.code == 0, self.said
        assert not self.left_behind, f"left behind: {self.left_behind}\n{self.said}"
        assert "nanobind: leaked" not in self.stderr, self.said
        return self


def run_ranks(
    n: int,
    script: Path | str,
    *args: object,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    launcher_options: Sequence[object] = (),
    forked: bool = True,
    bound: bool = False,
) -> Result:
    """The script, or the source of one, on n ranks. Without other options, what is printed is what a user sees: rank 0's.

    forked: whether ranks may be forks of a process that has imported TensorFlow; a program that is no Python script never is.
    bound: whether ranks are bound to cores as a user's are, although other tests use the machine meanwhile.
    """
    options = [*([] if bound else ["--no-pin"]), "-n", str(n), *map(str, launcher_options), "--"]
    if forked and _is_python(script):
        job = partial(preloaded_jobs.run, forked_jobs.LAUNCHER, ["--preload", "tensorflow", *options])
    else:
        job = partial(_run_program, [*LAUNCHER, *options])
    return _run(job, script, args, timeout, env)


def run_alone(
    script: Path | str, *args: object, timeout: float = 60, env: Mapping[str, str] | None = None, forked: bool = True
) -> Result:
    """The script, or the source of one, in one process, without the launcher. forked: as for `run_ranks`."""
    job = partial(preloaded_jobs.run, forked_jobs.SCRIPT, []) if forked else partial(_run_program, [sys.executable])
    return _run(job, script, args, timeout, {"TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})})


def _is_python(script: Path | str) -> bool:
    return isinstance(script, str) or script.suffix == ".py"


def _run(
    job: Callable[[list[str], Mapping[str, str], str, float], Outcome],
    script: Path | str,
    args: Sequence[object],
    timeout: float,
    env: Mapping[str, str] | None,
) -> Result:
    """job: runs the words of a script in an environment and a folder, with a deadline of SLACK times the timeout."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    environment = {**inherited, **DEFAULTS, **(env or {})}
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(script, str):
            path = Path(folder, "rank.py")
            path.write_text(dedent(script))
        else:
            path = script
        before, started = _shared_memory(), time.monotonic()
        outcome = job([str(path), *map(str, args)], environment, folder, SLACK * timeout)
        seconds = time.monotonic() - started
        left = [f"process {pid}" for pid in outcome.left] + [f"/dev/shm/{name}" for name in _shared_memory() - before]
    result = Result(-1 if outcome.late else outcome.code, outcome.stdout, outcome.stderr, seconds, tuple(left))
    assert not outcome.late, f"still running after {SLACK * timeout} s: {result.said}"
    return result


def _run_program(command: list[str], words: list[str], environment: Mapping[str, str], folder: str, timeout: float) -> Outcome:
    """The command with these words, as a program of its own."""
    job, late = uuid.uuid4().hex, False
    process = subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env={**environment, MARK: job},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except BaseException as error:
        late = True
        process.terminate()  # the launcher ends its ranks
        try:
            stdout, stderr = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout = stderr = ""
        if not isinstance(error, subprocess.TimeoutExpired):
            _kill(_processes(job))
            raise
    running = _processes(job)
    _kill(running)
    process.wait()
    return Outcome(process.returncode, stdout, stderr, running, late)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _shared_memory() -> set[str]:
    """Ours only: others use shared memory meanwhile, such as Open MPI on the hosts of another test, which are called tnt-..."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if name.startswith(("tarantella", "tnt"))}


def _processes(job: str) -> list[int]:
    """Running processes that have the job's mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={job}".encode() not in (entry / "environ").read_bytes():
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # gone meanwhile, or somebody else's
            continue
        if state not in "ZX":
            found.append(int(entry.name))
    return found
