"""Ranks bound to cores and sockets: which cores and memory they get, on this machine and on made-up ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.options import parse
from tarantella.launcher.start import pinning
from tarantella.launcher.start.pinning import Pinning, Place, find_shares, find_sockets

NODES = Path("/sys/devices/system/node")
with_sockets = pytest.mark.skipif(not (NODES / "node0").exists(), reason="this machine does not tell its sockets")
BINDS = """
text = Path("/proc/self/numa_maps").read_text() if os.path.exists("/proc/self/numa_maps") else ""
print(sorted(os.sched_getaffinity(0)), any(" bind:" in line for line in text.splitlines()), bool(text))
"""


def machine(folder: Path, **lists: str) -> Path:
    """A machine with these lists of cores for its nodes."""
    for node, cores in lists.items():
        path = folder / "sys/devices/system/node" / node / "cpulist"
        path.parent.mkdir(parents=True)
        path.write_text(cores + "\n")
    return folder


@pytest.fixture
def sixteen_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(1, 16)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: None)


def test_sockets_of_a_machine(tmp_path, sixteen_cores):
    found = find_sockets(machine(tmp_path, node10="12-15", node0="0-3,8", node1="4-7,9-11", node2="", node3="16-19"))
    cores = {0: {1, 2, 3, 8}, 1: {4, 5, 6, 7, 9, 10, 11}, 10: set(range(12, 16))}  # that this process may use
    assert found == tuple(Place(frozenset(own), number) for number, own in cores.items())
    assert str(found[0]) == "socket 0: cores 1, 2, 3, 8"
    assert [Pinning(found, memory=False).place_of(rank).socket for rank in range(5)] == [0, 1, 10, 0, 1]


def siblings(folder: Path, *lists: str) -> Path:
    """Hardware threads that share a core, on the same machine."""
    for cores in lists:
        for core in map(int, cores.split(",")):
            path = folder / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(cores + "\n")
    return folder


def test_shares_of_a_machine(tmp_path, sixteen_cores):
    machine(tmp_path, node0="0-3,8-11", node1="4-7,12-15")
    siblings(tmp_path, *(f"{core},{core + 8}" for core in range(8)))

    def shares(ranks):
        return [sorted(place.cores) for place in find_shares(ranks, tmp_path)]

    assert shares(2) == [[1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]  # core 0 belongs to others
    assert shares(4) == [[1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    every = find_shares(15, tmp_path)
    assert sorted(core for place in every for core in place.cores) == list(range(1, 16))
    assert str(every[0]) == "core 8"


def test_shares_of_a_machine_that_tells_nothing(tmp_path, sixteen_cores):
    assert [len(place.cores) for place in find_shares(4, tmp_path)] == [3, 4, 4, 4]


def test_more_ranks_than_cores_have_none_of_their_own(here):
    cores = len(os.sched_getaffinity(0))
    result = here.ranks(cores + 1, "", "--pin-to-cores")
    assert result.returncode == 2
    assert result.stderr == (
        f"tarantella: --pin-to-cores: {cores + 1} ranks cannot have cores of their own, of {cores} here: leave it out\n"
    )


def test_ranks_have_cores_of_their_own(here):
    ranks = len(os.sched_getaffinity(0))
    result = here.ranks(ranks, BINDS, "--pin-to-cores", "--output-on-all-devices")
    assert result.returncode == 0, result.stderr
    for rank, place in enumerate(find_shares(ranks)):
        assert any(line.startswith(f"[rank {rank}] {sorted(place.cores)} False") for line in result.stdout.splitlines())


@pytest.fixture
def cores():
    """Those of jobs, two at most."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:2])
    yield sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, all_of_them)


@pytest.mark.parametrize(("ranks", "options", "are_bound"), [(2, [], True), (2, ["--no-pin"], False), (3, [], False)])
def test_ranks_are_bound_by_default_if_each_has_a_core(here, cores, ranks, options, are_bound):
    if len(cores) < 2:
        pytest.skip("one core")
    script = "print(sorted(os.sched_getaffinity(0)))"
    result = here.ranks(ranks, script, "--output-on-all-devices", "--no-gpu", *options)
    assert result.returncode == 0, result.stderr
    assert (", on cores of its own" in result.stderr) == are_bound
    expected = [f"[rank {rank}] {cores[rank : rank + 1] if are_bound else cores}" for rank in range(ranks)]
    assert sorted(result.stdout.splitlines()) == expected


def test_ranks_with_gpus_are_not_bound_by_default(monkeypatch, tmp_path, sixteen_cores):
    script = tmp_path / "train.py"
    script.touch()
    options = parse(["-n", "2", "--", str(script)])
    for gpus, are_bound in ((0, True), (1, False)):
        monkeypatch.setattr(pinning, "visible_gpus", lambda _, gpus=gpus: gpus)
        assert (Pinning.from_options(options, 2) is not None) == are_bound


@pytest.mark.parametrize(("threads", "are_bound"), [("7", True), ("8", False), ("many", True)])
def test_ranks_that_shall_have_more_threads_than_cores_are_not_bound_by_default(tmp_path, sixteen_cores, threads, are_bound):
    script = tmp_path / "train.py"
    script.touch()
    options = parse(["-n", "2", "--no-gpu", "-x", f"TF_NUM_INTRAOP_THREADS={threads}", "--", str(script)])
    assert (Pinning.from_options(options, 2) is not None) == are_bound


def test_one_way_to_bind_ranks(here):
    for options in (["--pin-to-cores", "--pin-memory-to-socket"], ["--no-pin", "--pin-to-cores"]):
        result = here.ranks(1, "", *options)
        refusal = "tarantella: --pin-to-cores, --pin-to-socket and --no-pin: give one of them\n"
        assert (result.returncode, result.stderr) == (2, refusal)


def test_a_machine_without_sockets(tmp_path):
    with pytest.raises(UsageError, match=r"^--pin-to-socket: this machine does not list its sockets in /sys"):
        find_sockets(tmp_path)


def test_a_rank_is_bound_before_it_runs():
    """To one of the cores that this process has, in a child."""
    core = max(os.sched_getaffinity(0))
    bind = Pinning([Place(frozenset({core}))], memory=False).preparation(7)
    child = os.fork()
    if child == 0:
        bind()
        os._exit(os.sched_getaffinity(0) != {core})
    assert os.waitpid(child, 0)[1] == 0
    assert len(os.sched_getaffinity(0)) >= 1


@with_sockets
def test_ranks_have_the_cores_of_their_sockets(here):
    sockets = find_sockets()
    result = here.ranks(3, BINDS, "--pin-to-socket", "--output-on-all-devices")
    assert result.returncode == 0, result.stderr
    for rank in range(3):
        cores = sorted(sockets[rank % len(sockets)].cores)
        assert any(line.startswith(f"[rank {rank}] {cores} False") for line in result.stdout.splitlines()), result.stdout


@with_sockets
def test_memory_is_bound_or_the_refusal_is_said(here):
    result = here.ranks(2, BINDS, "--pin-memory-to-socket")
    if result.returncode == 2:
        assert result.stderr.startswith("tarantella: --pin-memory-to-socket: the system does not bind memory: ")
        assert len(result.stderr.splitlines()) == 1
    else:
        cores, bound, told = result.stdout.strip().rsplit(" ", 2)
        assert (result.returncode, cores) == (0, str(sorted(find_sockets()[0].cores)))
        assert bound == told


def test_memory_that_cannot_be_bound():
    with pytest.raises(UsageError, match=r"^--pin-memory-to-socket: the system does not bind memory: .*; use --pin-to-socket$"):
        Pinning([Place(frozenset({0}), 1000)], memory=True)


@with_sockets
def test_a_dry_run_says_the_sockets(here):
    result = here.ranks(1, "", "--pin-to-socket", "--dry-run")
    assert result.stdout.splitlines()[0] == f"rank 0 on {find_sockets()[0]}:"
