"""The timeline of a training run: what is in it, and that reductions run while backward goes on."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import chain, groupby

import pytest

from support.launch import RANKS, run_ranks

SIZE, STEPS = 2, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the ranks found, with the timeline and without."""
    folder = tmp_path_factory.mktemp("timeline")
    for name, options in (("with", ["--timeline", folder / "timeline.json"]), ("without", [])):
        (folder / name).mkdir()
        options = ["--fusion-threshold", "100", "-x", "TNT_INTERNAL_OVERLAP=on", *options]
        run_ranks(SIZE, RANKS / "keras/buckets.py", folder / name, 2048, STEPS // 2, launcher_options=options).good()
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return {
        name: [json.loads((folder / name / f"{rank}.json").read_text()) for rank in range(SIZE)] for name in ("with", "without")
    }


@pytest.fixture(scope="module")
def events(folder):
    """Begin and end of each event, in the order of time, by rank, track and name."""
    timeline = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in timeline if e["name"] == "thread_name"}
    result = defaultdict(list)
    for event in sorted((e for e in timeline if e["ph"] != "M"), key=lambda e: e["ts"]):
        key = event["pid"], tracks[event["pid"], event["tid"]], event["name"]
        result[key].append((event["ts"], event["ts"] + event.get("dur", 0)))
    return result


def test_ranks_are_named(folder):
    timeline = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in timeline if event["name"] == "process_name"}
    assert names == {rank: f"rank {rank}" for rank in range(SIZE)}


def test_there_are_several_buckets(found):
    buckets = found["with"][0]["buckets"]
    assert len(buckets) >= 4
    assert sorted(chain(*buckets)) == list(range(14))


class Steps:
    """The events of one rank's gradients, step by step. A large bucket goes in pieces, each with the same phases."""

    def __init__(self, events, rank, buckets):
        self.buckets = range(buckets)
        self._of = {name: spans for (of, track, name), spans in events.items() if (of, track) == (rank, "gradients")}

    def ready(self, bucket):
        """When the bucket was full, in each step."""
        return [begin for begin, _ in self._of[f"ready {bucket}"]]

    def phase(self, phase, bucket, step):
        """The spans of a phase in one step, in the order of time."""
        borders = [*self.ready(bucket), float("inf")]
        return [span for span in self._of[f"{phase} {bucket}"] if borders[step] <= span[0] < borders[step + 1]]


@pytest.fixture(params=range(SIZE))
def rank(request):
    return request.param


@pytest.fixture
def steps(found, events, rank):
    return Steps(events, rank, len(found["with"][0]["buckets"]))


def test_every_phase_of_every_bucket_of_every_step(steps):
    for bucket in steps.buckets:
        assert len(steps.ready(bucket)) == STEPS
        for step in range(STEPS):
            phases = [steps.phase(phase, bucket, step) for phase in ("pack", "reduce", "unpack")]
            assert len(phases[0]) == len(phases[1]) == len(phases[2]) > 0
            for pack, reduce, unpack in zip(*phases, strict=True):
                assert pack[0] <= pack[1] <= reduce[1]
                assert reduce[0] <= reduce[1] <= unpack[1]


def test_steps_contain_their_reductions(steps, events, rank):
    spans = sorted(chain(*(spans for (of, track, _), spans in events.items() if (of, track) == (rank, "step"))))
    assert len(spans) == STEPS
    for bucket in steps.buckets:
        for step, (begin, end) in enumerate(spans):
            assert begin <= steps.ready(bucket)[step]
            assert steps.phase("unpack", bucket, step)[-1][1] <= end


def test_buckets_are_reduced_in_one_order(steps):
    begins = sorted(
        (begin, bucket) for bucket in steps.buckets for step in range(STEPS) for begin, _ in steps.phase("pack", bucket, step)
    )
    assert [bucket for bucket, _ in groupby(bucket for _, bucket in begins)] == [*steps.buckets] * STEPS


def test_reduction_begins_while_backward_goes_on(steps):
    overlapped = 0
    for step in range(STEPS):
        first_pack = min(steps.phase("pack", bucket, step)[0][0] for bucket in steps.buckets)
        overlapped += first_pack < max(steps.ready(bucket)[step] for bucket in steps.buckets)
    assert overlapped > STEPS // 2, f"in {overlapped} of {STEPS} steps"


def test_looking_changes_nothing(found):
    assert found["with"] == found["without"]
    assert found["with"][0] == found["with"][1]
