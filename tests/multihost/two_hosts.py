"""Two hosts on one machine: network namespaces with a shaped link between them, each with a host name of its own.

`python tests/multihost/two_hosts.py -- COMMAND...` runs a command on the first one, with the environment that lets mpirun
start ranks on both (addresses 10.77.0.1 and 10.77.0.2). Needs root, and a kernel that allows it; says so where it does not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LINK = "tntlink"  # the same name on both ends, for options that take one
ADDRESSES = ("10.77.0.1", "10.77.0.2")
BURST = 4000
"""Bytes that a link takes at once, before it is limited to its rate."""
PREFIX = "tnt-"
COMMAND_SECONDS = 10
_numbers = itertools.count()


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def said(self) -> str:
        """All that it printed."""
        return f"code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


@dataclass(frozen=True)
class TwoHosts:
    """The namespaces, and what a process on the first one needs to start others on both."""

    namespaces: tuple[str, ...]
    environment: Mapping[str, str]

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The same command on a host."""
        name = shlex.quote(self.namespaces[host])
        text = f"hostname {name} && exec {shlex.join(command)}"
        return ["ip", "netns", "exec", self.namespaces[host], "unshare", "--uts", "sh", "-c", text]

    def start(self, host: int, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A process on a host; its output is kept for communicate."""
        return subprocess.Popen(
            self.command(host, command),
            env={**os.environ, **self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Ended:
        """Runs a command on the first host. Raises AssertionError with its words if it takes longer."""
        started = time.monotonic()
        process = self.start(0, command, env)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException as error:
            self.kill_all()
            stdout, stderr = process.communicate(timeout=COMMAND_SECONDS)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = Ended(-1, stdout, stderr, timeout).said
            raise AssertionError(f"{shlex.join(command)}: still running after {timeout} s: {said}") from None
        return Ended(process.returncode, stdout, stderr, time.monotonic() - started)

    def processes(self) -> list[int]:
        """All that run on the hosts."""
        return [pid for name in self.namespaces for pid in _processes(name)]

    def kill_all(self) -> None:
        """Ends all that run on the hosts."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Takes the link away: neither host hears of the other any more."""
        cut_off(self, 0)


def why_not() -> str:
    """Why there can be no two hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: iproute2, util-linux)"
    try:
        with two_hosts() as hosts:
            hosts.run(["true"], timeout=COMMAND_SECONDS)
    except (OSError, AssertionError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        return f"this kernel allows no network namespaces, or no shaped link between them: {output.strip()}"
    return ""


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Makes them, and removes them with all that runs there."""
    remove_stale()
    job = new_name()
    names = (f"{job}a", f"{job}b")
    with tempfile.TemporaryDirectory(prefix="tnt-hosts-") as folder:
        hosts = TwoHosts(names, environment_of(dict(zip(ADDRESSES, names, strict=True)), Path(folder)))
        try:
            _make(names)
            yield hosts
        finally:
            for name in names:
                remove(name)


def new_name() -> str:
    """The beginning of the names of a job's namespaces, by which `remove_stale` finds them."""
    return f"{PREFIX}{os.getpid()}-{next(_numbers)}"


def _make(names: Sequence[str]) -> None:
    for name in names:
        add_namespace(name)
    ip("-n", names[0], "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", names[1])
    for name, address in zip(names, ADDRESSES, strict=True):
        connect(name, address)


def add_namespace(name: str) -> None:
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def connect(name: str, address: str, burst: int = BURST) -> None:
    """Gives the link of a host its address, and shapes what the host sends."""
    ip("-n", name, "address", "add", f"{address}/24", "dev", LINK)
    ip("-n", name, "link", "set", LINK, "up")
    shape = ("tbf", "rate", "1gbit", "burst", str(burst), "latency", "50ms")
    _run("tc", "-n", name, "qdisc", "add", "dev", LINK, "root", *shape)


def environment_of(names: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What lets an mpirun on one of the hosts start ranks on all. names: of the namespaces, by address."""
    agent = folder / "agent"  # in ssh's place: agent [OPTION...] HOST COMMAND...
    cases = "".join(f"  {address}) name={name} ;;\n" for address, name in names.items())
    agent.write_text(
        "#!/bin/sh\n"
        'while [ "${1#-}" != "$1" ]; do shift; done  # options of ssh\n'
        f'host=$1\nshift\ncase $host in\n{cases}  *) echo "agent: no host $host" >&2; exit 1 ;;\nesac\n'
        'exec ip netns exec "$name" unshare --uts sh -c "hostname $name && $*"\n'
    )
    agent.chmod(0o755)
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_btl_tcp_if_include": LINK,
        "OMPI_MCA_oob_tcp_if_include": LINK,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(agent),
        "HYDRA_IFACE": LINK,
    }


def cut_off(hosts: TwoHosts, host: int) -> None:
    """Takes the link of a host away."""
    ip("-n", hosts.namespaces[host], "link", "set", LINK, "down")


def remove(name: str) -> None:
    """Ends all that runs in a namespace, and deletes it."""
    for _ in range(3):  # what is killed may have started something meanwhile
        for pid in _processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.SubprocessError):
        ip("netns", "delete", name)


def remove_stale() -> None:
    """Those of a process that was killed before it could remove them."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0] if line.split() else ""
        pid = name.removeprefix(PREFIX).rpartition("-")[0]
        if name.startswith(PREFIX) and pid.isdigit() and not Path("/proc", pid).exists():
            remove(name)


def _processes(name: str) -> list[int]:
    try:
        return [int(pid) for pid in ip("netns", "pids", name).split()]
    except subprocess.SubprocessError:
        return []


def ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS).stdout


def main(argv: Sequence[str]) -> int:
    """Runs the command after `--` on the first host."""
    if len(argv) < 2 or argv[0] != "--":
        print("usage: two_hosts.py -- COMMAND...", file=sys.stderr)
        return 2
    reason = why_not()
    if reason:
        print(f"two_hosts: {reason}", file=sys.stderr)
        return 1
    with two_hosts() as hosts:
        return subprocess.call(hosts.command(0, argv[1:]), env={**os.environ, **hosts.environment})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
