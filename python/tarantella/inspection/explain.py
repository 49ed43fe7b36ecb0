"""`tarantella explain FOLDER`: which rank fell out of step where, from the flight records of a failed job."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tarantella.flight import folder
from tarantella.flight.folder import Folder, NoRecordsError
from tarantella.flight.record import Call, Key
from tarantella.flight.waits import Wait, Waits
from tarantella.flight.words import named_ranks, seconds
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.arguments import Parser

READ, NOTHING = 0, 1


def explain(argv: Sequence[str]) -> int:
    """Returns what the process should exit with. Raises UsageError; SystemExit for --help."""
    parser = Parser(
        prog="tarantella explain",
        usage="tarantella explain FOLDER [--calls N] [--json]",
        description="Explains which rank fell out of step, and where. Reads the flight records that `tarantella "
        "--flight-recorder FOLDER` writes when a job fails. Exit code 1: there are none.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--calls", metavar="N", type=int, default=0, help="also show the last N calls of each rank")
    parser.add_argument("--json", action="store_true", help="print everything that was recorded as JSON")
    given = parser.parse_args(list(argv))
    if given.calls < 0:
        raise UsageError(f"--calls: must not be negative, not {given.calls}")
    try:
        if not given.folder.is_dir():
            raise UsageError(f"{str(given.folder)!r} is not a folder: name the one that --flight-recorder was given")
        found = folder.read(given.folder)
    except NoRecordsError as error:
        print(f"tarantella: {error}", file=sys.stderr)
        return NOTHING
    if given.json:
        ranks = [{**asdict(told), "record": _as_json(found, rank)} for rank, told in found.told.items()]
        print(json.dumps({"ranks": ranks, "notes": found.notes}, indent=1))
    else:
        print("\n".join(text(found, given.calls)))
    return READ


def text(found: Folder, calls: int = 0) -> Iterator[str]:
    """The explanation, line by line."""
    yield f"The job of {found.ranks} rank{'' if found.ranks == 1 else 's'} ended: {_reason(found)}."
    yield from (f"Note: {note}." for note in found.notes)
    waits = Waits(found.records)
    yield from _ends(found)
    different = [line for key in waits.communicators() for line in _mismatches(found, waits, key)]
    yield from different
    said = {rank: _where(found, waits, rank) for rank in sorted(found.records)}
    groups: dict[str, list[int]] = {}
    for rank, line in said.items():
        groups.setdefault(line, []).append(rank)
    yield from (f"{_begins(ranks, waits)} {line}." for line, ranks in groups.items())
    yield from _verdict(found, waits, bool(different))
    for rank in sorted(found.records) if calls else []:
        yield from _history(found, waits, rank, calls)


def _reason(found: Folder) -> str:
    """The report that says most of several: a rank that was ended by others knows no reason."""
    return next((told.reason for told in found.told.values() if told.reason.startswith("rank")), _any_reason(found))


def _any_reason(found: Folder) -> str:
    return next(iter(found.told.values())).reason


def _ends(found: Folder) -> Iterator[str]:
    stopped = [rank for rank, told in found.told.items() if told.stopped]
    if stopped:
        yield f"{named_ranks(stopped).capitalize()} had been stopped by a signal, such as SIGSTOP, or by a debugger."
    unjoined = [told for rank, told in found.told.items() if rank not in found.records]
    for told in unjoined:
        yield f"Rank {told.rank} (pid {told.pid} on {told.host}) {told.ended}, and had not joined."


def _mismatches(found: Folder, waits: Waits, key: Key) -> Iterator[str]:
    """The first call of a communicator that was not the same on all ranks."""
    if key.messages:
        return
    by_number: dict[int, dict[int, Call]] = {}
    for rank in found.records:
        lane = waits.lane(rank, key)
        for call in lane.calls if lane is not None else ():
            by_number.setdefault(call.number, {})[rank] = call
    for number in sorted(by_number):
        different: dict[tuple[object, ...], list[int]] = {}
        for rank, call in by_number[number].items():
            different.setdefault(call.what, []).append(rank)
        if len(different) > 1:
            parts = [
                f"{_verb(ranks, 'made', 'made')} {_described(by_number[number][ranks[0]])}"
                for ranks in sorted(different.values(), key=len)
            ]
            place = waits.named(key, found.ranks)
            yield f"The ranks made different calls: as call {number} of {place}, {'; '.join(parts)}."
            return


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return f"{named_ranks(ranks)} {one if len(ranks) == 1 else several}"


def _described(call: Call) -> str:
    return f"{call}{f' ({call.name})' if call.name else ''}"


def _where(found: Folder, waits: Waits, rank: int) -> str:
    """Where a rank was when the job ended, so that ranks at the same place get the same words."""
    wait = waits.main(rank)
    if wait is None:
        return _between_calls(found, waits, rank)
    call = f"call {wait.call.number} of {waits.named(wait.key, found.ranks)}, {_described(wait.call)}"
    late = waits.waits_for(rank)
    if wait.waits:
        return f"waited in {call}" + (f", for {named_ranks(late)}" if late else "")
    return f"{'was in' if wait.call.begin_ns else 'had come to'} {call}, and did not wait there"


def _between_calls(found: Folder, waits: Waits, rank: int) -> str:
    last = [(call, lane.key) for lane in found.records[rank].lanes if (call := lane.last) is not None]
    if not last:
        return "had made no call"
    call, key = max(last, key=lambda pair: (pair[0].begin_ns, pair[0].number))
    return f"was in no call; the last one was call {call.number} of {waits.named(key, found.ranks)}, {_described(call)}"


def _begins(ranks: Sequence[int], waits: Waits) -> str:
    """Names the ranks and how long ago they came there."""
    times = []
    for rank in ranks:
        wait = waits.main(rank)
        if wait is not None and wait.call.begin_ns:
            times.append(waits.age_ns(rank, wait.call.begin_ns))
    since = f" ({seconds(max(times))} before the end)" if times else ""
    return named_ranks(ranks).capitalize() + since


def _verdict(found: Folder, waits: Waits, different: bool) -> Iterator[str]:
    circle = waits.circle()
    if circle:
        steps = ", ".join(
            f"rank {rank} had made {found.records[rank].step}" for rank in circle if found.records[rank].progress_ns
        )
        yield (
            f"So {named_ranks(circle)} waited for one another in different calls, and none could go on: they did not make the "
            f"same calls in the same order{f', as with different numbers of batches. Of steps, {steps}' if steps else ''}."
        )
        return
    late: dict[int, Wait] = {}
    for rank in found.records:
        for other in waits.waits_for(rank):
            wait = waits.main(rank)
            assert wait is not None
            late.setdefault(other, wait)
    for rank, wait in sorted(late.items()):
        last, told = waits.last(rank, wait.key), found.told.get(rank)
        came = f"had come to call {last.number}, {_described(last)}" if last is not None else "had made no call there"
        how = "" if told is None else f" It {told.ended}."
        place = waits.named(wait.key, found.ranks)
        yield f"So rank {rank} fell out of step: others waited in call {wait.call.number} of {place}, and it {came}.{how}"
    if not late and not different:
        yield "No rank waited for another one when the job ended."


def _history(found: Folder, waits: Waits, rank: int, number: int) -> Iterator[str]:
    yield f"The last calls of rank {rank}:"
    calls: list[tuple[int, Call, Key]] = []
    for lane in found.records[rank].lanes:
        at = 0  # a call without a time began after the one before it
        for call in lane.calls:
            at = max(at, call.begin_ns)
            calls.append((at, call, lane.key))
    calls.sort(key=lambda one: one[0])
    for _, call, key in calls[-number:]:
        known, place = call.begin_ns > 0, waits.named(key, found.ranks)
        ago = f"{seconds(waits.age_ns(rank, call.begin_ns))} before the end" if known else "at an unknown time"
        took = "has not ended" if call.is_open else f"took {call.duration_us} us" if known else "did not wait"
        yield f"  {ago}: call {call.number} of {place}, {_described(call)}: {took}"


def _as_json(found: Folder, rank: int) -> object:
    return asdict(found.records[rank]) if rank in found.records else None
