"""The secret of a job: ranks that nobody of ours has started get it unseen, and no file, log or dry run has it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tarantella import mpi
from tarantella.threads import thread_environment, usable_cores

SUM = "import numpy as np, tarantella as tnt; print(tnt.all_reduce(np.ones(1)), tnt.seeding.agreed_seed(), input(), flush=True)"
SECRET = "a-secret-of-thirty-two-characters"


def started_by_hand(rank: int, port: int, command: list[str], token: dict[str, str], given: str) -> subprocess.Popen[str]:
    place = {"TNT_RANK": str(rank), "TNT_SIZE": "2", "TNT_RENDEZVOUS": f"tcp://127.0.0.1:{port}", "TNT_TIMEOUT": "30"}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    process = subprocess.Popen(
        command,
        env={**inherited, **place, **token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_ranks_get_it_by_standard_input_or_a_file(tmp_path: Path, port: int) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    (tmp_path / "token").chmod(0o600)
    python = [sys.executable, "-c", SUM]
    ranks = [
        started_by_hand(0, port, python, {"TNT_TOKEN_FILE": "-"}, f"{SECRET}\nmore\n"),
        started_by_hand(1, port, python, {"TNT_TOKEN_FILE": str(tmp_path / "token")}, "more\n"),
    ]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    (sum0, seed0, rest0), (sum1, seed1, rest1) = (out.split() for out, _ in outputs)
    assert (sum0, rest0) == (sum1, rest1) == ("[2.]", "more") and seed0 == seed1
    assert not any("command line" in err for _, err in outputs)


THREADS = """
import os, tarantella as tnt
names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
print([os.environ.get(name) for name in names], tnt.get_size(), flush=True)
"""


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_they_share_the_cores_of_their_node(port: int, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the launcher do. Over TCP only the starter knows how many share a node; too many threads are warned of."""
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    given = {"TNT_TOKEN_FILE": "-", **({"TNT_LOCAL_SIZE": "2"} if told else {})}
    ranks = [started_by_hand(rank, port, [sys.executable, "-c", THREADS], given, f"{SECRET}\n") for rank in range(2)]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    expected = thread_environment(2 if told else 1, usable_cores())
    assert [out for out, _ in outputs] == [f"{list(expected.values())} 2\n"] * 2, outputs
    crowded = not told and usable_cores() > 1
    assert ("2 ranks share this node" in outputs[0][1]) == crowded, outputs
    assert not crowded or "TNT_LOCAL_SIZE=2" in outputs[0][1]


def test_they_share_the_cores_of_a_node_on_which_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TNT_SIZE", "3")
    monkeypatch.setenv("TNT_RENDEZVOUS", "job-17")
    assert mpi.local_size() == 3
    monkeypatch.setenv("TNT_RENDEZVOUS", "tcp://node1:29500")
    assert mpi.local_size() == 1


def test_one_that_all_users_can_read_is_warned_of(port: int) -> None:
    for_all = ["sh", "-c", f"TNT_TOKEN={SECRET} {sys.executable} -c '{SUM}'; exit $?"]
    ranks = [started_by_hand(rank, port, for_all, {}, "more\n") for rank in range(2)]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    said = "(sh), which all users of this host can read: give it by TNT_TOKEN_FILE, a file or - for standard input"
    assert "the job's token is on the command line of process " in outputs[0][1] and said in outputs[0][1], outputs
    assert SECRET not in outputs[0][1]


def test_it_is_stored_and_logged_nowhere(here) -> None:
    body = """
        import logging, numpy as np, tarantella as tnt
        mark(f"digits{rank}", " ".join(os.environ["TNT_TOKEN"]))
        tnt.all_reduce(np.ones(100))
        tnt.Group([0]).communicator("x") if rank == 0 else None
        sys.exit(3)
        """
    options = ["--log-level", "DEBUG", "--log-on-all-devices", "--output-on-all-devices", "--timeline", "timeline.json"]
    result = here.ranks(2, body, *options, "--flight-recorder", "records")
    token = here.read("digits0").replace(" ", "")
    assert result.returncode == 3 and len(token) == 32
    explained = here.run("explain", "records", "--json", "--calls", "99")
    texts = {"output": result.stdout, "log": result.stderr, "explained": explained.stdout}
    texts |= {str(path): path.read_bytes().decode(errors="replace") for path in here.folder.rglob("*") if path.is_file()}
    assert any("timeline" in name for name in texts) and any("records" in name for name in texts)
    assert [name for name, text in texts.items() if token in text] == []
    shown = here.ranks(2, body, "--dry-run").stdout
    assert "TNT_TOKEN=<a secret>" in shown
