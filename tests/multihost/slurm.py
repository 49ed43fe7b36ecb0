"""Slurm on the two hosts of two_hosts.py: a controller on the first, a daemon on each, so that srun starts ranks on both."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from two_hosts import ADDRESSES, Ended, TwoHosts

PROGRAMS = ("slurmctld", "slurmd", "srun", "sinfo")
READY_SECONDS = 30
SBIN = "/usr/sbin"  # not on every user's PATH

# no accounts, no cgroups, no secrets: the network namespaces keep it to itself
CONFIGURATION = """
ClusterName=tarantella
SlurmctldHost={first}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldPort=6817
SlurmdPort=6818
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm."""

    hosts: TwoHosts
    environment: Mapping[str, str]

    def srun(self, *words: str, timeout: float, env: Mapping[str, str] | None = None) -> Ended:
        """Runs srun on the first host."""
        return self.run("srun", *words, timeout=timeout, env=env)

    def run(self, *words: str, timeout: float = READY_SECONDS, env: Mapping[str, str] | None = None) -> Ended:
        """Runs a command of Slurm's, or a script with such commands, on the first host."""
        return self.hosts.run(words, timeout=timeout, env={**self.environment, **(env or {})})

    def wait(self, reached: Callable[[list[str]], bool], what: str, timeout: float) -> None:
        """Until it is reached, as the states of all jobs show, such as ``["1_0 R"]``."""
        deadline = time.monotonic() + timeout
        while not reached(states := self.run("squeue", "-h", "-o", "%i %t").stdout.splitlines()):
            assert time.monotonic() < deadline, f"{what}: not within {timeout} s; jobs {states}"
            time.sleep(0.2)


def why_no_slurm() -> str:
    """Why there is no Slurm to start; empty if there is."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurmctld, slurmd, slurm-client)"
    program = shutil.which("slurmctld", path=_path()) or "slurmctld"  # srun does not even say its version unconfigured
    listed = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    version = listed.stdout.replace("slurm-wlm", "").replace("slurm", "").strip()
    if version < "22":  # older ones want other settings
        return f"Slurm 22.05 or newer is needed, this is {version or 'of unknown version'}"
    return ""


@contextlib.contextmanager
def slurm(hosts: TwoHosts, folder: Path) -> Iterator[Slurm]:
    """Starts it, waits until both hosts are ready, and ends it. All that it writes goes into folder."""
    (folder / "state").mkdir()
    lines = [CONFIGURATION.format(first=hosts.namespaces[0], address=ADDRESSES[0], folder=folder)]
    for name, address in zip(hosts.namespaces, ADDRESSES, strict=True):
        lines.append(f"NodeName={name} NodeAddr={address} CPUs=4 State=UNKNOWN\n")
        for kind in ("spool", "tmp"):
            (folder / f"{kind}-{name}").mkdir()
    (folder / "slurm.conf").write_text("".join(lines))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")  # named, so that none is looked for
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
    commands = [(0, ["slurmctld", "-D", "-c"])] + [
        (host, ["slurmd", "-D", "-N", name]) for host, name in enumerate(hosts.namespaces)
    ]
    daemons: list[subprocess.Popen[str]] = []
    try:
        for host, command in commands:
            daemons.append(hosts.start(host, command, environment))
        _wait_until_ready(hosts, environment, daemons)
        yield Slurm(hosts, environment)
    finally:
        hosts.kill_all()
        for daemon in daemons:
            daemon.communicate(timeout=READY_SECONDS)


def _wait_until_ready(hosts: TwoHosts, environment: Mapping[str, str], daemons: Sequence[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    states: list[str] = []
    while states != ["idle", "idle"]:
        ended = [daemon for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            hosts.kill_all()
            said = "\n".join("".join(daemon.communicate(timeout=READY_SECONDS)) for daemon in ended or daemons)
            raise AssertionError(f"Slurm is not ready on both hosts within {READY_SECONDS} s (states {states}): {said}")
        time.sleep(0.2)
        asked = hosts.run(["sinfo", "-h", "-N", "-o", "%t"], timeout=READY_SECONDS, env=environment)
        states = asked.stdout.split()


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), SBIN])
