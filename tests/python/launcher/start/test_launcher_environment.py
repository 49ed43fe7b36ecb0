"""What a rank finds: who it is, its threads, its descriptors."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tarantella.errors import InvalidArgumentError
from tarantella.launcher.base.words import describe_cores
from tarantella.settings import reproducible
from tarantella.threads import thread_environment, usable_cores

CHOSEN = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_CPP_MIN_LOG_LEVEL", "PYTHONUNBUFFERED")


def test_every_rank_learns_who_it_is(here):
    result = here.ranks(3, "mark(f'env{rank}', {key: os.environ[key] for key in os.environ if 'TNT' in key})")
    assert result.returncode == 0
    found = [eval(here.read(f"env{rank}")) for rank in range(3)]
    assert [one["TNT_RANK"] for one in found] == [one["TNT_LOCAL_RANK"] for one in found] == ["0", "1", "2"]
    assert {one["TNT_SIZE"] for one in found} == {one["TNT_LOCAL_SIZE"] for one in found} == {"3"}
    (name,) = {one["TNT_RENDEZVOUS"] for one in found}
    (token,) = {one["TNT_TOKEN"] for one in found}
    assert re.fullmatch(r"tarantella-[0-9a-f]{16}", name)
    assert re.fullmatch(r"[0-9a-f]{32}", token)


def test_a_rank_has_its_own_descriptors_only(here):
    result = here.ranks(
        3,
        """
        own = {int(os.environ[key].partition(":")[0]) for key in ("TNT_INTERNAL_REPORT_FD", "TNT_INTERNAL_FLIGHT_RECORD")}
        open_ones = set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2} - own
        print(sorted(fd for fd in open_ones if os.path.exists(f"/proc/self/fd/{fd}")))
        """,
        "--output-on-all-devices",
    )
    assert sorted(result.stdout.splitlines()) == [f"[rank {rank}] []" for rank in range(3)]


def test_only_rank_0_has_the_input(here):
    (here.folder / "input").write_text("typed")
    with (here.folder / "input").open() as typed:
        result = here.ranks(2, "print(repr(sys.stdin.read()))", "--output-on-all-devices", stdin=typed)
    assert sorted(result.stdout.splitlines()) == ["[rank 0] 'typed'", "[rank 1] ''"]


def test_trackers_of_other_ranks_log_nothing(here, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    show = "print(os.environ.get('WANDB_MODE'), os.environ.get('NEPTUNE_MODE'))"
    result = here.ranks(2, show, "--output-on-all-devices")
    assert sorted(result.stdout.splitlines()) == ["[rank 0] offline None", "[rank 1] disabled debug"]
    result = here.ranks(2, show, "--output-on-all-devices", "-x", "WANDB_MODE=online")
    assert sorted(result.stdout.splitlines()) == ["[rank 0] online None", "[rank 1] online debug"]


def test_threads_are_shared_and_said(here, monkeypatch):
    for key in CHOSEN:
        monkeypatch.delenv(key, raising=False)
    cores = usable_cores()
    result = here.ranks(cores + 1, f"print([os.environ[key] for key in {CHOSEN}])")
    assert result.stdout == "['1', '1', '2', '2', '1']\n"
    some = "1 core" if cores == 1 else f"{cores} cores"
    line = f"tarantella: {cores + 1} ranks on {some}: 1 intra-op thread each (ranks share cores)\n"
    assert result.stderr == line


def test_reproducible_ranks_have_one_thread_however_many_they_are(here, monkeypatch):
    for key in CHOSEN:
        monkeypatch.delenv(key, raising=False)
    show = f"print([os.environ[key] for key in {CHOSEN[:2]}], 'TNT_INTERNAL_THREADS_CHOSEN' in os.environ)"
    for ranks in (1, 2):
        result = here.ranks(ranks, show, "--reproducible", "8")
        assert result.stdout == "['1', '1'] False\n"
        assert ": 1 intra-op thread each" in result.stderr
    assert here.ranks(1, show, "--reproducible", "8", "-x", "TF_NUM_INTRAOP_THREADS=2").stdout == "['1', '2'] False\n"


def test_a_rank_knows_who_chose_its_threads(here, monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    show = "from tarantella import environment; print(environment.threads_chosen())"
    assert here.ranks(1, show).stdout == "True\n"
    assert here.ranks(1, show, "-x", "TF_NUM_INTRAOP_THREADS=2").stdout == "False\n"
    assert here.ranks(1, show, "--reproducible", "8").stdout == "False\n"
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    assert here.ranks(1, show).stdout == "False\n"


@pytest.mark.parametrize("value", ["3", "0", "-8", "8.0", "yes", "²"])
def test_shards_that_are_no_power_of_two_are_refused(value):
    with pytest.raises(InvalidArgumentError, match=r"TNT_REPRODUCIBLE=.* power of two"):
        reproducible({"TNT_REPRODUCIBLE": value})


@pytest.mark.parametrize(("value", "shards"), [("", None), ("1", 1), ("8", 8), ("64", 64)])
def test_shards_are_a_power_of_two(value, shards):
    assert reproducible({"TNT_REPRODUCIBLE": value}) == shards
    assert reproducible({}) is None


def test_what_the_user_has_set_stays(here, monkeypatch):
    for key in CHOSEN:
        monkeypatch.setenv(key, "5")
    result = here.ranks(1, f"print([os.environ[key] for key in {CHOSEN}])", "-x", "TF_NUM_INTRAOP_THREADS=6")
    assert result.stdout == "['5', '6', '5', '5', '5']\n"
    assert ": 6 intra-op threads each\n" in result.stderr


@pytest.mark.parametrize(
    ("ranks", "cores", "each", "line"),
    [
        (1, 1, "1", "1 rank on 1 core: 1 intra-op thread each"),
        (1, 8, "8", "1 rank on 8 cores: 8 intra-op threads each"),
        (3, 8, "2", "3 ranks on 8 cores: 2 intra-op threads each"),
        (4, 2, "1", "4 ranks on 2 cores: 1 intra-op thread each (ranks share cores)"),
    ],
)
def test_cores_are_divided(ranks, cores, each, line):
    environment = thread_environment(ranks, cores)
    assert environment["OMP_NUM_THREADS"] == environment["TF_NUM_INTRAOP_THREADS"] == each
    assert environment["TF_NUM_INTEROP_THREADS"] == str(max(2, int(each)))
    assert describe_cores(ranks, cores, each) == line


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1600000 100000\n"}, 8),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/../c\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_a_quota_limits_the_cores(tmp_path: Path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
