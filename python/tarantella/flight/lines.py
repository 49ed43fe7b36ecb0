"""The status of a job, as its launcher tells it (`launcher/show/job_view.py`), as a table and as plain lines."""

import time
from collections.abc import Mapping
from typing import Any

from tarantella.flight.words import named_ranks, seconds, size

Told = Mapping[str, Any]
COLUMNS = ("rank", "pid", "state", "step", "samples/s", "memory", "restarts", "call", "since", "waits for")


def title(job: Told) -> str:
    """The job in one line."""
    count, restarts = job["ranks"], job["restarts"]
    started = f", restarted {restarts} time{'' if restarts == 1 else 's'}" if restarts else ""
    age = seconds(int(max(0.0, time.time() - job["began"]) * 1e9))
    return f"job {job['pid']} on {job['host']}: {count} rank{'' if count == 1 else 's'} for {age}{started}: {job['command']}"


def rows(job: Told) -> list[tuple[str, ...]]:
    """A row for each rank, in the order of COLUMNS."""
    return [_row(job, rank) for rank in job["members"]]


def _row(job: Told, rank: Told) -> tuple[str, ...]:
    def shown(name: str, form: str = "{}") -> str:
        return "-" if rank.get(name) is None else form.format(rank[name])

    memory = "-" if rank["memory"] is None else size(rank["memory"])
    since = "-" if rank.get("since") is None else seconds(int(rank["since"] * 1e9))
    rate = shown("samples_per_second", "{:.1f}")
    begin = (str(rank["rank"]), str(rank["pid"]), rank["state"], shown("step"), rate, memory)
    return (*begin, str(job["restarts"]), _call(rank), since, _waits(rank))


def _call(rank: Told) -> str:
    if "call" not in rank:
        return "-"
    name = f", {rank['name']}" if rank["name"] else ""
    return f"{rank['number']}: {rank['call']}{name}"


def _waits(rank: Told) -> str:
    if "unreadable" in rank:
        return f"its record cannot be read: {rank['unreadable']}"
    return named_ranks(rank["waits_for"]) if rank.get("waits_for") else "-"


def job_lines(job: Told) -> list[str]:
    """Lines of text: the job, then each rank as a sentence."""
    return [title(job), *(f"  {_sentence(job, rank)}" for rank in job["members"])]


def _sentence(job: Told, rank: Told) -> str:
    of = dict(zip(COLUMNS, _row(job, rank), strict=True))
    verb = "is " if rank["state"] in ("running", "stopped") else ""
    parts = [f"rank {of['rank']} (pid {of['pid']}) {verb}{rank['state']}"]
    if of["step"] != "-":
        rate = f" at {of['samples/s']} samples/s" if of["samples/s"] != "-" else ""
        parts.append(f"step {of['step']}{rate}")
    if of["memory"] != "-":
        parts.append(f"memory {of['memory']}")
    if of["call"] != "-":
        does = "waits in call" if rank["waits"] else "in call"
        since = f" since {of['since']}" if of["since"] != "-" else ""
        parts.append(f"{does} {of['call']}{since}" + (f" for {of['waits for']}" if of["waits for"] != "-" else ""))
    if "unreadable" in rank:
        parts.append(of["waits for"])
    return ", ".join(parts)
