"""Two ranks on one GPU: allowed by NCCL from 2.30.3 on, and by earlier versions if each rank has another NCCL_HOSTID.

They take turns on the GPU, or reach each other over the loopback interface: few calls, and no time of theirs is a speed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_check.machine import Nccl
from gpu_check.run import Clock, Failed, Line, call, job, json_lines

SHARING = (2, 30, 3)
RANKS = 2
LARGEST_ERROR = 2e-5  # of a loss: the order of sums is another one
CASES: dict[str, tuple[str, ...]] = {
    "capture": ("capture",),
    "abort": ("abort",),
    "all-reduce": ("all_reduce", "--max-bytes", "2097152", "--repeats", "3"),
    "reducer": ("reducer", "--model", "resnet50"),
}


@dataclass(frozen=True)
class Way:
    """A way to make NCCL connect ranks on one GPU."""

    name: str
    env_of: Callable[[int], Mapping[str, str]]  # rank


def share_gpu(rank: int) -> Mapping[str, str]:
    return {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": "8",  # the kernels of all ranks wait for each other: they have to fit together
        "NCCL_NET_GDR_LEVEL": "LOC",
    }


def be_other_hosts(rank: int) -> Mapping[str, str]:
    return {
        "NCCL_HOSTID": f"gpu-check-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket",
        "NCCL_IB_DISABLE": "1",
        "NCCL_MAX_CTAS": "8",
    }


SHARED = Way("NCCL_MULTI_RANK_GPU_ENABLE", share_gpu)
OTHER_HOSTS = Way("NCCL_HOSTID over lo", be_other_hosts)


def ways_of(nccl: Nccl) -> list[Way]:
    """The better ways first."""
    return [SHARED, OTHER_HOSTS] if nccl.version >= SHARING else [OTHER_HOSTS]


@contextlib.contextmanager
def mps(wanted: bool) -> Iterator[Mapping[str, str] | None]:
    """Our own MPS server, which lets processes compute at the same time; None if it does not start."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not wanted or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tnt-mps-") as folder:
        env = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = tell(program, ["-d"], env)
        try:
            yield env if started else None
        finally:
            tell(program, [], env, "quit\n")


def tell(program: str, words: Sequence[str], env: Mapping[str, str], said: str = "") -> bool:
    """Whether the program took it. The server that it leaves behind keeps its output open: a pipe would never end."""
    try:
        done = subprocess.run(
            [program, *words], input=said, env={**os.environ, **env}, text=True, timeout=20,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def losses(said: str) -> list[float]:
    """The loss of each epoch, from a trainer's output."""
    return [float(number) for number in re.findall(r"^epoch \d+ loss (\S+)$", said, re.MULTILINE)]


def compare_losses(ranks: int, got: Sequence[float], serial: Sequence[float]) -> Line:
    if len(got) != len(serial) or not serial:
        raise Failed(f"cuda_trainer: {len(got)} losses on {ranks} ranks, {len(serial)} on one")
    errors = [abs(a - b) for a, b in zip(got, serial, strict=True)]
    if not all(error <= LARGEST_ERROR for error in errors):  # nor is what is no number
        raise Failed(f"cuda_trainer: on {ranks} ranks the losses are {got}, on one {serial}")
    return {"case": f"trainer/{ranks} ranks", "largest_difference": max(errors)}


@dataclass(frozen=True)
class Programs:
    """What the ranks run, with NCCL's library, and where their results go."""

    trainer: Path
    bench: Path
    library: Mapping[str, str]
    clock: Clock
    add: Callable[[list[Line]], None]


def run_way(way: Way, server: Mapping[str, str] | None, serial: Sequence[float], programs: Programs) -> list[str]:
    """Adds the result of each case, and returns what failed. Raises Failed if the ranks do not train: the way is none."""

    def env_of(rank: int) -> Mapping[str, str]:
        share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // RANKS)} if server else {}
        return {**programs.library, **(server or {}), **share, **way.env_of(rank)}

    def add(lines: list[Line]) -> None:
        how = way.name + (", MPS" if server else "")
        programs.add([{**line, "way": how, "time_sliced": not server} for line in lines])

    said = job("trainer", RANKS, [programs.trainer, "--epochs", 3], programs.clock.limit(60), env_of)
    add([compare_losses(RANKS, losses(said), serial)])
    failures = []
    for case, words in CASES.items():
        try:
            add(json_lines(job(case, RANKS, [programs.bench, *words], programs.clock.limit(45), env_of))[1:])
        except Failed as failure:
            failures.append(f"{case}: {failure}")
    return failures


def check_ranks(nccl: Nccl, programs: Programs) -> str:
    """The way that worked. What fails hides no other result."""
    serial = losses(call("trainer", [programs.trainer, "--epochs", 3], programs.clock.limit(60), programs.library))
    tried = []
    for way in ways_of(nccl):
        for with_server in (True, False):
            with mps(with_server) as server:
                if with_server and server is None:
                    continue
                how = f"{way.name}{', MPS' if server else ''}"
                try:
                    failures = run_way(way, server, serial, programs)
                except Failed as failure:
                    tried.append(f"{how}: {failure}")
                    continue
                if failures:
                    raise Failed("\n".join([f"by {how}:", *failures]))
                return f"by {how}" + "".join(f"; not by {text.splitlines()[0]}" for text in tried)
    raise Failed("\n".join(tried))
