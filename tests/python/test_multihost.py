"""Jobs on two hosts, which are network namespaces with a link between them: ranks started by mpirun, srun and our launcher."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from slurm import Slurm, slurm, why_no_slurm
from support.launch import DEFAULTS, LAUNCHER, run_alone
from support.mpirun import needs_mpirun
from two_hosts import ADDRESSES, Ended, TwoHosts, two_hosts, why_not

REASON = why_not()
NO_SLURM = why_no_slurm()
needs_slurm = pytest.mark.skipif(bool(NO_SLURM), reason=NO_SLURM or "available")
pytestmark = [pytest.mark.long, needs_mpirun, pytest.mark.skipif(bool(REASON), reason=REASON or "available")]

SUMS = """
    import json, socket
    import numpy as np
    import tarantella as tnt

    rank, size = tnt.get_rank(), tnt.get_size()
    right = True
    for count in (1, 1000, 300_001):
        mine = np.random.default_rng(rank).integers(-99, 99, count).astype(np.float32)
        wanted = sum(np.random.default_rng(other).integers(-99, 99, count).astype(np.float32) for other in range(size))
        right = right and np.array_equal(tnt.all_reduce(mine), wanted)
    place = [rank, size, tnt.get_local_rank(), tnt.get_local_size()]
    print(json.dumps({"place": place, "host": socket.gethostname(), "right": bool(right)}) + "\\n", end="", flush=True)
    """

FIT = """
    import numpy as np
    import tarantella as tnt
    import keras

    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=(90, 5)).astype("float32")
    y = x @ np.arange(5, dtype="float32")[:, None]
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model = tnt.Model(model)
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    history = model.fit(x, y, batch_size=25, epochs=2, shuffle=False, verbose=0)  # the last batch is ragged
    if tnt.is_master_rank():
        numbers = [*history.history["loss"], *np.concatenate([one.ravel() for one in model.get_weights()])]
        print("numbers", *(f"{number:.8g}" for number in numbers), flush=True)
    """

LOST = """
    import os, signal, time
    import numpy as np
    import tarantella as tnt

    tnt.barrier()
    if tnt.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tnt.all_reduce(np.ones(100_000))
    """

ONCE_LOST = """
    import os, signal
    import numpy as np
    import tarantella as tnt

    tnt.barrier()
    number = int(os.environ["TNT_RESTART"])
    if number == 0 and tnt.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    total = tnt.all_reduce(np.ones(100_000))
    if tnt.is_master_rank():
        print(f"start {number}: {tnt.get_size()} ranks sum to {total[-1]:g}", flush=True)
    """

FOR_EVER = """
    import sys
    from pathlib import Path
    import numpy as np
    import tarantella as tnt

    while True:
        tnt.all_reduce(np.ones(100_000))
        Path(sys.argv[1], f"up{tnt.get_rank()}").touch()
    """


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with two_hosts() as hosts, slurm(hosts, tmp_path_factory.mktemp("slurm")) as cluster:
        listed = cluster.srun("--mpi=list", timeout=30)
        if "pmix" not in listed.stdout + listed.stderr:
            pytest.skip(f"this Slurm has no PMIx plugin: {listed.stdout}{listed.stderr}")
        yield cluster


@pytest.fixture
def environment(monkeypatch) -> dict[str, str]:
    for name in [name for name in os.environ if name.startswith("TNT_")]:
        monkeypatch.delenv(name)
    return {**DEFAULTS, "TF_CPP_MIN_LOG_LEVEL": "2", "TNT_LOG_LEVEL": "INFO"}


def script(folder: Path, source: str) -> str:
    path = folder / "rank.py"
    path.write_text(dedent(source))
    return str(path)


def by_mpirun(environment: dict[str, str], each: int, *words: object) -> list[str]:
    """So many ranks on each host."""
    exported = [word for name in environment for word in ("-x", name)]
    names = ",".join(f"{address}:{each}" for address in ADDRESSES)
    return ["mpirun", "--host", names, "-n", str(2 * each), *exported, sys.executable, *map(str, words)]


def by_launcher(folder: Path, each: int, *words: object, options: tuple[str, ...] = ()) -> list[str]:
    """The same, by our launcher with a hostfile."""
    path = folder / "hosts"
    path.write_text("# two hosts\n" + "".join(f"{address} slots={each}\n" for address in ADDRESSES))
    return [*LAUNCHER, "--hostfile", str(path), *options, "--", *map(str, words)]


def gone(hosts: TwoHosts, within: float) -> bool:
    deadline = time.monotonic() + within
    while hosts.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not hosts.processes()


def check_sums(result: Ended, namespaces: tuple[str, str]) -> None:
    assert result.code == 0, result.said
    said = [json.loads(line[line.index("{") :]) for line in result.stdout.splitlines()]
    said.sort(key=lambda one: one["place"])
    assert [one["place"] for one in said] == [[0, 4, 0, 2], [1, 4, 1, 2], [2, 4, 0, 2], [3, 4, 1, 2]]
    assert [one["host"] for one in said] == [name for name in namespaces for _ in range(2)]
    assert all(one["right"] for one in said), result.said
    assert "4 ranks on 2 nodes, transport hierarchical" in result.stderr, result.said


@pytest.mark.parametrize("starter", ["mpirun", "launcher"])
def test_sums_over_two_hosts(hosts: TwoHosts, environment, tmp_path: Path, starter: str):
    path = script(tmp_path, SUMS)
    if starter == "mpirun":
        command = by_mpirun(environment, 2, path)
    else:
        command = by_launcher(tmp_path, 2, path, options=("--output-on-all-devices",))
    result = hosts.run(command, timeout=60, env=environment)
    check_sums(result, hosts.namespaces)
    assert gone(hosts, within=5)


@pytest.mark.parametrize("starter", ["mpirun", "launcher"])
def test_fit_computes_what_one_rank_does(hosts: TwoHosts, environment, tmp_path: Path, starter: str):
    path = script(tmp_path, FIT)
    serial = run_alone(Path(path), timeout=120).good().stdout
    command = by_mpirun(environment, 1, path) if starter == "mpirun" else by_launcher(tmp_path, 1, path)
    result = hosts.run(command, timeout=120, env=environment)
    assert result.code == 0, result.said
    assert "2 ranks on 2 nodes" in result.stderr, result.said
    [expected], [found] = ([line.split()[1:] for line in text.splitlines() if line.startswith("numbers")]
                           for text in (serial, result.stdout))
    assert len(expected) == 2 + 5 * 4 + 4 + 4 + 1
    assert [float(word) for word in found] == pytest.approx([float(word) for word in expected], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("starter", ["mpirun", "launcher"])
def test_a_killed_rank_ends_the_job_and_is_named(hosts: TwoHosts, environment, tmp_path: Path, starter: str):
    path = script(tmp_path, LOST)
    command = by_mpirun(environment, 1, path) if starter == "mpirun" else by_launcher(tmp_path, 1, path)
    result = hosts.run(command, timeout=30, env=environment)
    assert result.code != 0
    assert result.seconds < 10, result.said
    if starter == "mpirun":  # its own words may come before ours
        assert re.search(r"\brank 1\b|peer process has unexpectedly disconnected|\bFATAL\b", result.stderr), result.said
    else:
        assert re.search(rf"tarantella: rank 1 \(pid \d+ on {hosts.namespaces[1]}\) was killed by SIGKILL", result.stderr), (
            result.said
        )
    assert gone(hosts, within=5)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_launcher_ends_both_hosts(hosts: TwoHosts, environment, tmp_path: Path, sent: signal.Signals):
    path = script(tmp_path, FOR_EVER)
    launcher = hosts.start(0, ["env", "--default-signal=INT", *by_launcher(tmp_path, 1, path, tmp_path)], environment)
    try:
        deadline = time.monotonic() + 30
        while not all((tmp_path / f"up{rank}").exists() for rank in range(2)):
            assert time.monotonic() < deadline and launcher.poll() is None, "the ranks did not start"
            time.sleep(0.05)
        os.kill(launcher.pid, sent)  # each of ip, unshare, sh and env has become the next one
        launcher.communicate(timeout=15)
        assert launcher.returncode == (-9 if sent == signal.SIGKILL else 128 + sent)
        assert gone(hosts, within=10)
    finally:
        hosts.kill_all()
        launcher.communicate(timeout=10)


@pytest.mark.skipif(shutil.which("mpirun.mpich") is None, reason="no MPICH on this machine")
def test_mpich_starts_ranks_on_both_hosts(hosts: TwoHosts, environment, tmp_path: Path):
    path = script(tmp_path, "import os, socket; print(os.environ['PMI_RANK'], socket.gethostname(), os.environ['A'])")
    options = ("--mpirun", "mpirun.mpich", "--output-on-all-devices", "-x", "A=1 2")
    result = hosts.run(by_launcher(tmp_path, 1, path, options=options), timeout=30, env=environment)
    assert result.code == 0, result.said
    expected = [f"[rank {rank}] {rank} {name} 1 2" for rank, name in enumerate(hosts.namespaces)]
    assert sorted(result.stdout.splitlines()) == expected, result.said


def test_a_job_on_two_hosts_is_started_again_after_a_killed_rank(hosts: TwoHosts, environment, tmp_path: Path):
    path = script(tmp_path, ONCE_LOST)
    result = hosts.run(by_launcher(tmp_path, 1, path, options=("--max-restarts", "1")), timeout=60, env=environment)
    assert result.code == 0, result.said
    where = rf"\({ADDRESSES[0]}:1, {ADDRESSES[1]}:1\)"
    why = rf"rank 1 \(pid \d+ on {hosts.namespaces[1]}\) was killed by SIGKILL"
    assert re.search(rf"tarantella: restart 1 of 1 on 2 ranks {where}: {why}", result.stderr), result.said
    assert "start 1: 2 ranks sum to 2" in result.stdout, result.said
    assert gone(hosts, within=5)


@needs_slurm
def test_srun_starts_ranks_that_sum_over_two_hosts(cluster: Slurm, environment, tmp_path: Path):
    words = ["--mpi=pmix", "-N", "2", "--ntasks-per-node=2", sys.executable, script(tmp_path, SUMS)]
    check_sums(cluster.srun(*words, timeout=60, env=environment), cluster.hosts.namespaces)


@needs_slurm
def test_srun_and_a_killed_rank(cluster: Slurm, environment, tmp_path: Path):
    words = ["--mpi=pmix", "-N", "2", "--kill-on-bad-exit=1", sys.executable, script(tmp_path, LOST)]
    result = cluster.srun(*words, timeout=30, env=environment)
    assert result.code != 0
    assert result.seconds < 10, result.said
    assert re.search(rf"{cluster.hosts.namespaces[1]}: task 1: Killed|PeerLostError: rank 1 ", result.stderr), result.said


def test_a_host_that_cannot_be_reached_is_said(hosts: TwoHosts, environment, tmp_path: Path):
    path = script(tmp_path, SUMS)
    result = hosts.run([*LAUNCHER, "--hosts", f"{ADDRESSES[0]},10.77.0.9", "--", path], timeout=30, env=environment)
    assert result.code != 0
    assert "agent: no host 10.77.0.9" in result.stderr, result.said


def test_a_cut_link_ends_the_job_with_a_name(environment, tmp_path: Path):
    path = script(tmp_path, FOR_EVER)
    environment["TNT_TIMEOUT"] = "3"
    with two_hosts() as hosts:
        launcher = hosts.start(0, by_launcher(tmp_path, 1, path, tmp_path), environment)
        try:
            deadline = time.monotonic() + 30
            while not all((tmp_path / f"up{rank}").exists() for rank in range(2)):
                assert time.monotonic() < deadline and launcher.poll() is None, "the ranks did not start"
                time.sleep(0.05)
            hosts.cut()
            launcher.wait(timeout=30)  # not for its output, too: what runs on the other host may hold that open
        finally:
            hosts.kill_all()
            _, stderr = launcher.communicate(timeout=10)
        assert launcher.returncode != 0
        assert re.search(r"DeadlineError: rank [01] did not arrive within 3 s", stderr), stderr
