"""How the ranks of a job share the cores of this node.

TensorFlow alone starts one thread per core in every rank: with N ranks that is N times too many, and slow.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tarantella import mpi, settings, variables


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, further limited by the cpu quota of its cgroups.

    A quota is rounded down: threads beyond it get throttled in turn, and each stalls all ranks.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except OSError:  # a container may refuse it
        cores = os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(root))]))


def thread_environment(ranks: int, cores: int, shards: int | None = None) -> dict[str, str]:
    """Thread counts for each of so many ranks. Inter-op gets two at least: one may wait in a collective.

    shards: with reproducible training, one thread computes an operation, however many ranks share the cores: with other numbers
    of threads, TensorFlow's convolutions give other bits.
    """
    each = max(1, cores // ranks)
    intra = 1 if shards is not None else each
    return {
        "OMP_NUM_THREADS": str(intra),
        "TF_NUM_INTRAOP_THREADS": str(intra),
        "TF_NUM_INTEROP_THREADS": str(max(2, each)),
    }


def chosen_threads(ranks: int, cores: int, given: Mapping[str, str]) -> dict[str, str]:
    """The thread counts that the environment does not set, and THREADS_CHOSEN if bits depend on them.

    given: the environment of a rank. Raises InvalidArgumentError if TNT_REPRODUCIBLE makes no sense.
    """
    shards = settings.reproducible(given)
    chosen = {name: value for name, value in thread_environment(ranks, cores, shards).items() if name not in given}
    if shards is None and "TF_NUM_INTRAOP_THREADS" in chosen:
        chosen[variables.THREADS_CHOSEN] = "1"
    return chosen


def share_cores() -> None:
    """Sets the thread counts of OpenMP and TensorFlow, unless they are set, to this rank's share of the cores."""
    ranks = 1 if is_bound() else mpi.local_size()
    os.environ.update(chosen_threads(ranks, usable_cores(), os.environ))


def crowding(ranks: int) -> str:
    """What to say if this rank computes with cores that others of its node have a share in; empty if it does not.

    ranks: as many as are on this node, which a starter over TCP need not have told before they joined.
    """
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "1")
    if variables.THREADS_CHOSEN not in os.environ or is_bound() or ranks <= mpi.local_size() or threads == "1":
        return ""
    return (
        f"{ranks} ranks share this node, and each computes with {threads} threads, as if it were alone: they slow each other "
        f"down. Start each rank with TNT_LOCAL_SIZE={ranks}, or set TF_NUM_INTRAOP_THREADS"
    )


def use_all_cores() -> None:
    """Lets this rank use the cores of all ranks of its machine, unless a user has bound it to fewer."""
    cores = os.environ.pop(variables.CORES, None)
    if cores is None:
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread has ended, or the machine's cores are others now
            os.sched_setaffinity(int(thread), map(int, cores.split(",")))


def is_bound() -> bool:
    """Whether this process is bound to cores: it may use fewer than its parent."""
    try:
        return os.sched_getaffinity(0) < os.sched_getaffinity(os.getppid())
    except OSError:
        return False


def _quotas(root: Path) -> Iterator[float]:
    """The cpu quotas, in cores, of the cgroup of this process and of all that contain it."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            for folder in _upwards(root / "sys/fs/cgroup", path):
                yield from _quotient(*(_read(folder / "cpu.max") or "").split())
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup" / controllers, path):
                quota = _read(folder / "cpu.cfs_quota_us") or ""
                yield from _quotient(quota.strip(), (_read(folder / "cpu.cfs_period_us") or "").strip())


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup and its parents up to the mount; in a container often the mount alone exists."""
    yield mount
    folder = mount
    for part in Path(path).parts[1:]:
        if part == "..":  # not visible in this container
            return
        folder /= part
        yield folder


def _quotient(*words: str) -> Iterator[float]:
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
        yield int(words[0]) / int(words[1])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
