"""Ranks that wait for one that has already gone learn of it."""

from __future__ import annotations

import os

import pytest

SOCKET = """
import socket
name = "\\0" + os.environ["TNT_RENDEZVOUS"]
def listen():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name); listener.listen(); listener.settimeout(10)
    return listener
def heard(listener):
    connection, _ = listener.accept()
    with connection: return connection.makefile().read()
def joined():
    with socket.socket(socket.AF_UNIX) as connection:
        while connection.connect_ex(name): time.sleep(0.01)
        connection.sendall(b"a greeting\\n"); time.sleep(0.1); connection.sendall(b"and more\\n")
        return connection.makefile().read()
"""


def test_rank_0_is_told_of_ranks_that_exit_before_they_join(here):
    body = """
if rank: sys.exit(0)
listener = listen()
mark("heard", [os.environ["TNT_TOKEN"], *sorted([heard(listener), heard(listener)])])
"""
    assert here.ranks(3, SOCKET + body).returncode == 0
    token, *lines = eval(here.read("heard"))
    assert lines == [f"tarantella 1 {token} exit {rank} 0\n" for rank in (1, 2)]


def test_rank_0_is_told_once_however_late_it_listens(here):
    body = """
if rank: mark("gone"); sys.exit(0)
wait_for("gone"); time.sleep(0.3)
listener = listen()
mark("heard", heard(listener))
listener.settimeout(0.3)
try: heard(listener)
except TimeoutError: mark("once")
"""
    assert here.ranks(2, SOCKET + body).returncode == 0
    assert here.read("heard").endswith(" exit 1 0\n")
    assert here.read("once") == ""


def test_rank_0_is_told_of_a_rank_that_fails(here):
    body = """
if rank: wait_for("ready"); sys.exit(3)
listener = listen(); mark("ready")
mark("heard", heard(listener))
"""
    result = here.ranks(2, SOCKET + body)
    assert result.returncode == 3
    assert here.read("heard").endswith(" exit 1 3\n")


def test_the_others_are_told_of_a_rank_0_that_has_exited(here):
    body = """
if rank == 0: sys.exit(0)
mark(f"told{rank}", joined())
"""
    assert here.ranks(3, SOCKET + body).returncode == 0
    told = [here.read(f"told{rank}") for rank in (1, 2)]
    assert told == ["error rank 0 exited with code 0 before the ranks had joined\n"] * 2


def test_the_launcher_leaves_a_taken_name_alone(here):
    body = """
if rank == 0:
    wait_for("taken"); sys.exit(0)
if rank == 1:
    listener = listen(); mark("taken"); mark("heard", heard(listener)); sys.exit(0)
wait_for("taken"); time.sleep(0.2)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(name); connection.sendall(b"to rank 1")
"""
    assert here.ranks(3, SOCKET + body).returncode == 0
    assert here.read("heard") == "to rank 1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_the_token_is_not_told_to_another_user(here):
    body = """
if rank == 0:
    if os.fork() == 0:
        os.setuid(65534)
        listener = listen(); print("listening", flush=True)
        told = heard(listener); print("told", repr(told), flush=True); os._exit(0)
    time.sleep(1); sys.exit(0)
time.sleep(0.3); sys.exit(0)
"""
    result = here.ranks(2, SOCKET + body)
    assert (result.returncode, result.stdout) == (0, "listening\ntold ''\n"), result.stderr
