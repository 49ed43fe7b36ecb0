"""Several ranks on one GPU: allowed by NCCL from 2.30.3 on, and by earlier versions if each rank has another NCCL_HOSTID."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpu_check.build import BENCH, TRAINER
from gpu_check.machine import Nccl
from gpu_check.run import Clock, Failed, Line, call, job, json_lines

SHARING = (2, 30, 3)
RANKS = (2, 4)
LARGEST_ERROR = 2e-5  # of a loss: the order of sums is another one
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Way:
    """A way to make NCCL connect ranks on one GPU."""

    name: str
    env_of: Callable[[int, int], Mapping[str, str]]  # rank, ranks
    largest: int  # bytes of an all_reduce: over the loopback interface it is slow
    slow: bool = False  # its times are those of the loopback interface


def share_gpu(rank: int, ranks: int) -> Mapping[str, str]:
    return {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": str(max(2, 16 // ranks)),  # the kernels of all ranks wait for each other: they have to fit together
        "NCCL_NET_GDR_LEVEL": "LOC",
    }


def be_other_hosts(rank: int, ranks: int) -> Mapping[str, str]:
    return {
        "NCCL_HOSTID": f"gpu-check-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket",
        "NCCL_IB_DISABLE": "1",
        "NCCL_MAX_CTAS": str(max(2, 16 // ranks)),
    }


SHARED = Way("NCCL_MULTI_RANK_GPU_ENABLE", share_gpu, 256 * MEBIBYTE)
OTHER_HOSTS = Way("NCCL_HOSTID over lo", be_other_hosts, 16 * MEBIBYTE, slow=True)


@contextlib.contextmanager
def mps(wanted: bool) -> Iterator[Mapping[str, str] | None]:
    """Our own MPS server, which lets processes compute at the same time; None if it does not start."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not wanted or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tnt-mps-") as folder:
        env = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        everything = {**os.environ, **env}
        started = subprocess.run([program, "-d"], env=everything, capture_output=True, timeout=20)
        try:
            yield env if started.returncode == 0 else None
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([program], input="quit\n", env=everything, text=True, capture_output=True, timeout=20)


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


def run_way(
    way: Way, server: Mapping[str, str] | None, serial: Sequence[float], clock: Clock, library: Mapping[str, str]
) -> list[Line]:
    lines: list[Line] = []
    for ranks in RANKS:

        def env_of(rank: int, ranks: int = ranks) -> Mapping[str, str]:
            share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // ranks)} if server else {}
            return {**library, **(server or {}), **share, **way.env_of(rank, ranks)}

        said = job("trainer", ranks, [TRAINER, "--epochs", 3], clock.limit(60), env_of)
        lines.append(compare_losses(ranks, losses(said), serial))
        largest = ["--max-bytes", way.largest]
        lines += json_lines(job("all-reduce", ranks, [BENCH, "all_reduce", *largest], clock.limit(60), env_of))[1:]
        lines += json_lines(job("overlap", ranks, [BENCH, "overlap"], clock.limit(60), env_of))[1:]
        for case in ("capture", "abort"):
            lines += json_lines(job(case, ranks, [BENCH, case], clock.limit(60), env_of))[1:]
        lines += json_lines(job("reducer", ranks, [BENCH, "reducer", "--model", "resnet50"], clock.limit(60), env_of))[1:]
    for line in lines:
        line["way"] = way.name + (", MPS" if server else "")
        line["slow"] = way.slow
    return lines


def check_ranks(nccl: Nccl, clock: Clock, library: Mapping[str, str]) -> tuple[str, list[Line]]:
    """The way that worked, and the measurements. Tries the better ways first."""
    serial = losses(call("trainer", [TRAINER, "--epochs", 3], clock.limit(60), library))
    ways = [SHARED, OTHER_HOSTS] if nccl.version >= SHARING else [OTHER_HOSTS]
    failures = []
    for way in ways:
        for with_server in (True, False):
            with mps(with_server) as server:
                if with_server and server is None:
                    continue
                try:
                    lines = run_way(way, server, serial, clock, library)
                except Failed as failure:
                    failures.append(f"{way.name}{', MPS' if server else ''}: {failure}")
                    continue
                tried = "".join(f"; not by {text.splitlines()[0]}" for text in failures)
                return f"by {lines[0]['way']}{tried}", lines
    raise Failed("\n".join(failures))
