"""Finds the jobs of this host by the sockets of their launchers, and asks them."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarantella.flight.record import Record, UnreadableRecordError, read_file
from tarantella.flight.waits import Waits
from tarantella.launcher.base.local_server import uid_of_peer
from tarantella.launcher.show.status_socket import PREFIX

SECONDS = 5.0
"""A launcher that does not answer within this time is stopped."""


@dataclass(frozen=True)
class Answers:
    """The answers of the launchers of this host."""

    jobs: tuple[dict[str, Any], ...]
    silent: tuple[int, ...]
    """The processes that did not answer in time."""
    strangers: tuple[int, ...]
    """Those of other users."""


def ask_all() -> Answers:
    """Asks the launchers of all jobs on this host."""
    parts: list[dict[str, Any]] = []
    silent, strangers = [], []
    for pid, name in sorted(_sockets()):
        try:
            told = _ask(name)
        except PermissionError:
            strangers.append(pid)
        except TimeoutError:
            silent.append(pid)
        except (OSError, ValueError, RecursionError):  # it has ended meanwhile
            continue
        else:
            parts.append(told)
    return Answers(tuple(_whole_jobs(parts)), tuple(silent), tuple(strangers))


def _sockets() -> Iterator[tuple[int, str]]:
    """Abstract sockets of launchers, with the process that each names."""
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
        name = line.rpartition(" ")[2]
        pid = name.removeprefix(f"@{PREFIX}").partition("-")[0]
        listens = line.split()[3:4] == ["00010000"]
        if name.startswith(f"@{PREFIX}") and pid.isdigit() and listens:
            yield int(pid), f"\0{name[1:]}"


def _ask(name: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect(name)
        if uid_of_peer(connection) != os.geteuid():  # neither asks whom it does not know
            raise PermissionError
        answer = bytearray()
        while part := connection.recv(1 << 16):
            answer += part
    told = json.loads(answer)
    if not isinstance(told, dict):
        raise ValueError("no answer of a launcher")
    return told


def _whole_jobs(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each job once: a job of mpirun has a launcher, on one of the hosts, and a process beside each rank."""
    names = dict.fromkeys(part["job"] for part in parts)
    for name in names:
        same = [part for part in parts if part["job"] == name]
        first = min(same, key=lambda part: part["only"] is not None)
        members = sorted((rank for part in same for rank in part["members"]), key=lambda rank: rank["rank"])
        if len(same) > 1:
            _see_waits(members)
        yield {**first, "members": members}


def _see_waits(members: list[dict[str, Any]]) -> None:
    """Enters for whom ranks wait. Each of the processes that have answered knows one rank alone."""
    records: dict[int, Record] = {}
    for rank in members:
        with suppress(OSError, UnreadableRecordError):  # the rank has ended meanwhile
            if "record" in rank and (found := read_file(Path(rank["record"]))) is not None:
                records[rank["rank"]] = found
    waits = Waits(records, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    for rank in members:
        if "waits_for" in rank and rank["rank"] in records:
            rank["waits_for"] = waits.waits_for(rank["rank"])
