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
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from slurm import Slurm, slurm, why_no_slurm
from support.launch import DEFAULTS, LAUNCHER, run_alone
from support.mpirun import needs_mpirun
from two_hosts import ADDRESSES, Ended, TwoHosts, two_hosts, why_not

REASON = why_not()
ROOT = Path(__file__).parents[2]
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
    [expected], [found] = (
        [line.split()[1:] for line in text.splitlines() if line.startswith("numbers")] for text in (serial, result.stdout)
    )
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


@needs_slurm
def test_tasks_of_srun_that_cannot_meet_are_refused(cluster: Slurm, environment, tmp_path: Path):
    """Without PMIx each would take itself for the only rank. With --kill-on-bad-exit, srun would lose the last lines of one."""
    words = ["--mpi=none", "-N", "2", sys.executable, script(tmp_path, SUMS)]
    result = cluster.srun(*words, timeout=30, env=environment)
    assert result.code != 0
    assert "srun started 2 tasks that cannot find each other" in result.stderr and "srun --mpi=pmix" in result.stderr, (
        result.said
    )


@needs_slurm
def test_srun_without_mpi(cluster: Slurm, environment, tmp_path: Path):
    """The script of docs/clusters.md, for a batch job: ranks meet by TCP."""
    page = ROOT / "docs/clusters.md"
    lines = re.search(r"```\n(export TNT_TOKEN.*?)```", page.read_text(), re.DOTALL)
    assert lines is not None
    own = {"srun ": "srun --mpi=none ", "python train.py": f"{sys.executable} {script(tmp_path, SUMS)}"}
    own["$(scontrol show hostnames | head -n 1)"] = ADDRESSES[0]  # these hosts have no names that others know
    text = lines[1]
    for those, these in own.items():
        assert those in text
        text = text.replace(those, these)
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/sh\n" + text)
    options = ["--wait", "-N", "2", "--ntasks-per-node=2", f"--output={tmp_path}/out", f"--error={tmp_path}/err"]
    ended = cluster.run("sbatch", *options, str(job), timeout=60, env=environment)
    check_sums(replace(ended, stdout=(tmp_path / "out").read_text(), stderr=(tmp_path / "err").read_text()),
               cluster.hosts.namespaces)  # fmt: skip


@needs_slurm
@pytest.mark.parametrize("starter", ["srun", "mpirun"])
def test_the_job_of_the_first_steps(cluster: Slurm, environment, tmp_path: Path, starter: str):
    """Script and job of docs/slurm.md, on two nodes: the output has the lines of the page."""
    page = (ROOT / "docs/slurm.md").read_text()
    train, job, lines = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "bash", "text"))
    assert train is not None and job is not None and lines is not None
    (tmp_path / "train.py").write_text(train[1])
    text = job[1]
    if starter == "mpirun":
        mpirun = re.search(r"^mpirun .*", page, re.MULTILINE)
        assert mpirun is not None
        text = re.sub(r"^srun .*", mpirun[0], text, flags=re.MULTILINE)
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    activate = "source ~/tnt/bin/activate\n"
    assert activate in text
    (tmp_path / "train.sbatch").write_text(text.replace(activate, ""))
    env = {**environment, "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"}
    smaller = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--chdir={tmp_path}"]
    ended = cluster.run("sbatch", "--wait", *smaller, str(tmp_path / "train.sbatch"), timeout=90, env=env)
    said = (tmp_path / "train.log").read_text()
    assert ended.code == 0 and (tmp_path / "model.keras").exists(), f"{ended.said}{said}"
    assert "2 ranks on 2 nodes, transport hierarchical" in said

    def shapes(text: str) -> list[str]:
        return [re.sub(r"[\d.]+", "0", line) for line in text.splitlines()]

    missing = [line for line in shapes(lines[1]) if not any(one.startswith(line.rstrip(" …")) for one in shapes(said))]
    assert missing == [], said


@needs_slurm
def test_the_checks_before_the_first_steps(cluster: Slurm, environment):
    """The commands of docs/slurm.md that try a node and list the plug-ins."""
    commands = re.findall(r"^srun (--nodes.*|--mpi=list)$", (ROOT / "docs/slurm.md").read_text(), re.MULTILINE)
    assert len(commands) == 2
    env = {**environment, "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"}
    tried, listed = (cluster.run("srun", *words.replace("~/tnt/bin/", "").split(), timeout=90, env=env) for words in commands)
    assert tried.code == 0 and "Training works here." in tried.said, tried.said
    assert re.search(r"\bpmix\b", listed.said), listed.said


@needs_slurm
def test_an_array_of_jobs_goes_on_where_it_was_stopped(cluster: Slurm, environment, tmp_path: Path):
    """The example's job, which Slurm stops in the middle and starts again, has the loss of one that nobody has stopped."""
    for name in ("rates.py", "rates.sbatch"):
        shutil.copy(ROOT / "examples/more" / name, tmp_path)
    env = {**environment, "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"}
    job = [str(tmp_path / "rates.sbatch"), "--trials", "8", "--epochs", "8"]
    options = ["--parsable", "--array=1", "--ntasks-per-node=1", f"--chdir={tmp_path}"]
    number = cluster.run("sbatch", *options, *job, env=env).stdout.strip()
    trial = tmp_path / "trials/trial1"
    cluster.wait(lambda _: any(trial.glob("*.npz")), "a checkpoint", timeout=60)
    cluster.run("scontrol", "requeue", f"{number}_1")
    cluster.wait(lambda states: f"{number}_1 PD" in states, "the end of the job", timeout=30)
    log = tmp_path / "trial1.log"
    assert "best" not in log.read_text(), "the job was not stopped in the middle"
    cluster.run("scontrol", "update", f"JobId={number}_1", "StartTime=now")
    cluster.wait(lambda states: not states, "the end of the array", timeout=60)
    said = log.read_text()
    assert f"the newest good checkpoint is {trial}/" in said and "the training goes on with epoch " in said, said
    alone = run_alone(ROOT / "examples/more" / "rates.py", "--trials", 8, "--only", 1, "--epochs", 8, timeout=60).good()
    again, whole = (re.search(r"trial 1: rate 0.002683, loss (\S+)", text) for text in (said, alone.stdout))
    assert again is not None and whole is not None, said
    assert float(again[1]) == pytest.approx(float(whole[1]), abs=2e-4)


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
