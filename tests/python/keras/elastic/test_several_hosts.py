"""`tarantella --elastic` on three hosts, which are network namespaces: ranks and hosts are lost, and the others go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from many_hosts import switched_hosts
from support.launch import DEFAULTS, LAUNCHER, RANKS, run_ranks
from two_hosts import TwoHosts, cut_off, why_not

REASON = why_not()
pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(REASON), reason=REASON or "available")]

SCRIPT = RANKS / "keras/elastic.py"
SHELL = Path(__file__).parents[3] / "multihost/remote_shell.py"
SHARDS = 4
LAUNCHERS, FIRST, LAST = 0, 1, 2
"""The hosts of the launcher and of rank 3, of ranks 0 and 1, and of rank 2."""
SECONDS = 480
EPOCHS = "epochs=14"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of one rank: the bits are those of any number, and it takes the time of one."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_ranks(1, SCRIPT, folder, "", EPOCHS, launcher_options=["--elastic", "--reproducible", SHARDS]).good()
    return found_in(folder)[0]


@pytest.fixture
def hosts() -> Iterator[tuple[TwoHosts, list[str]]]:
    with switched_hosts(3) as (hosts, addresses):
        servers = [hosts.start(i, [sys.executable, str(SHELL), "--serve", one]) for i, one in enumerate(addresses)]
        try:
            for server in servers:
                assert server.stdout is not None and server.stdout.readline() == "ready\n"
            yield hosts, addresses
        finally:
            hosts.kill_all()
            for server in servers:
                server.communicate(timeout=20)


def found_in(folder: Path) -> dict[int, dict[str, Any]]:
    return {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("[0-9].json"))}


def on_host(hosts: TwoHosts, host: int) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", hosts.namespaces[host]], check=True, capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def end(hosts: TwoHosts, host: int) -> None:
    """All that runs there is killed, at once."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in on_host(hosts, host):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def train(
    hosts: tuple[TwoHosts, list[str]],
    folder: Path,
    plan: str,
    *words: str,
    begun: Callable[[], None],
    flags: Sequence[str] = (),
    where: Sequence[str] = (),
    **env: str,
) -> tuple[int, str]:
    """The exit code and what was said.

    begun: is called when a rank has made its first step. where: the options for that, if the hosts have other slots.
    """
    those, (a, b, c) = hosts
    options = ["--elastic", *(where or ("--hosts", f"{b}:2,{c}:1,{a}:1")), "--remote-shell", f"{sys.executable} {SHELL}"]
    options += ["--reproducible", str(SHARDS), "--log-level", "INFO", *flags]
    environment = {**DEFAULTS, "TF_CPP_MIN_LOG_LEVEL": "2", **env}
    job = those.start(LAUNCHERS, [*LAUNCHER, *options, "--", str(SCRIPT), str(folder), plan, EPOCHS, *words], environment)
    try:
        wait_for(lambda: (folder / "begun").exists() or job.poll() is not None)
        begun()
        stdout, stderr = job.communicate(timeout=SECONDS)
    finally:
        job.kill()
    return job.returncode, f"{stdout}\n---\n{stderr}"


def check(folder: Path, undisturbed: dict[str, Any], left: set[int], said: str) -> None:
    found = found_in(folder)
    assert found.keys() == left, said
    # of two that were added, the one that is ready first gets the lower rank
    assert sorted(one["rank"] for one in found.values()) == list(range(len(left))), said
    for one in found.values():
        assert one["ranks"] == len(left), said
        assert one["digest"] == undisturbed["digest"], said
        assert one["history"] == undisturbed["history"]


def wait_for(there: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not there() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_job_grows_onto_other_hosts_and_what_is_lost_with_a_host_or_without_is_replaced(hosts, undisturbed, tmp_path: Path):
    those, (a, b, c) = hosts
    file = tmp_path / "hosts"
    file.write_text(f"{b}:2\n")

    def add_and_lose() -> None:
        file.write_text(f"{b}:2\n{c}:1\n{a}:1\n")
        wait_for(lambda: (tmp_path / "2.came").exists() and (tmp_path / "3.came").exists())
        file.write_text(f"{b}:2\n{c}:1\n{a}:2\n")
        end(those, LAST)

    where, flags = ["--hostfile", str(file)], ["--max-ranks", "4", "--replacements", "2"]
    code, said = train(hosts, tmp_path, "0:with 5:2", "await=6", begun=add_and_lose, where=where, flags=flags)
    assert code == 0, said
    for host in (c, a):
        assert f" on {host}) starts in a slot that was added (--max-ranks)" in said, said
    assert "4 ranks on 3 nodes, transport hierarchical" in said, said
    lost = re.search(rf"rank (\d) .*was lost with its host \({c}: the connection to it has ended\); 3 ranks go on", said)
    assert lost is not None, said
    assert f" on {a}) starts in place of one that was lost (--elastic)" in said, said
    assert f" on {b}) was killed by SIGKILL; 3 ranks go on (--elastic)" in said, said
    assert f" on {b}) starts in place of one that was lost (--elastic)" in said, said
    check(tmp_path, undisturbed, {1, 2, 3, 4, 5} - {int(lost[1])}, said)


def test_the_host_of_rank_0_is_cut_off_and_ends_by_itself_and_a_rank_of_another_is_killed(hosts, undisturbed, tmp_path: Path):
    those, addresses = hosts

    def cut() -> None:
        before.extend(on_host(those, FIRST))
        cut_off(those, FIRST)

    before: list[int] = []
    code, said = train(hosts, tmp_path, "2:batch_end:30", "slow", begun=cut, TNT_TIMEOUT="12")
    assert code == 0, said
    assert "4 ranks on 3 nodes, transport hierarchical" in said, said
    assert f"was lost with its host ({addresses[FIRST]}: it has not answered for 12 s); 2 ranks go on (--elastic)" in said, said
    assert f" on {addresses[LAST]}) was killed by SIGKILL; 1 rank goes on (--elastic)" in said, said
    check(tmp_path, undisturbed, {3}, said)
    wait_for(lambda: len(on_host(those, FIRST)) == 1, seconds=30)  # the server of the remote shell is left
    assert len(before) > 1 and len(on_host(those, FIRST)) == 1
