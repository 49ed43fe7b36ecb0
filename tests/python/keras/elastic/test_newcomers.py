"""Ranks start in the places of lost ones (`--replacements`) or in slots that were added (`--max-ranks`), and join in `fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.launch import RANKS, Result, run_ranks

SCRIPT = RANKS / "keras/elastic.py"
SHARDS = 4


def train(
    ranks: int, folder: Path, plan: str, *options: str, newcomers: int, most: int | None = None, flags: Any = ()
) -> Result:
    """newcomers: as many start; most: as many may, if that is another number."""
    own = ["--elastic", "--replacements", newcomers if most is None else most, *flags]
    return run_ranks(ranks, SCRIPT, folder, plan, *options, f"await={ranks + newcomers}", launcher_options=own, timeout=240)


def grow(first: int, most: int, folder: Path, plan: str, *options: str, flags: Any = ()) -> Result:
    """Slots for so many ranks are in the hostfile when the first step is made."""
    hosts = folder / "hosts"
    hosts.write_text(f"localhost slots={first}\n")
    own = ["--elastic", "--max-ranks", most, "--hostfile", hosts, *flags]
    return run_ranks(first, SCRIPT, folder, plan, *options, f"await={most}", f"grow={most}", launcher_options=own, timeout=240)


def found_in(folder: Path) -> dict[int, dict[str, Any]]:
    """What ranks have found that were left in the end, by the numbers with which they started."""
    return {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("[0-9].json"))}


def started(result: Result) -> int:
    return result.stderr.count("starts in place of one that was lost")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of one rank: the bits are those of any number, and it takes the time of one."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train(1, folder, "", "batch_norm", "dropout", newcomers=0, flags=["--reproducible", SHARDS]).good()
    return found_in(folder)[0]


PLANS = {
    "all ranks of the beginning, one after another": ("1:batch_end:2,2:batch_end:2,3:batch_end:2,0:with 7:1", 3, {4, 5, 6}),
    "rank 0, and newcomers on their way and where they join": ("0:batch_end:4,4:ask:2,5:share:1", 3, {1, 2, 3, 6}),
    "the master, while one joins": ("2:batch_end:4,0:share:2", 2, {1, 3, 4, 5}),
}


@pytest.mark.parametrize(("plan", "newcomers", "left"), PLANS.values(), ids=PLANS.keys())
def test_the_bits_are_those_of_the_undisturbed_training(undisturbed, tmp_path: Path, plan: str, newcomers: int, left: set[int]):
    flags = ["--reproducible", SHARDS]
    result = train(SHARDS, tmp_path, plan, "batch_norm", "dropout", newcomers=newcomers, most=3, flags=flags).good()
    found = found_in(tmp_path)
    assert found.keys() == left, result.said
    assert sorted(one["rank"] for one in found.values()) == [*range(len(left))]  # in the order in which they have joined
    for one in found.values():
        assert one["ranks"] == len(left)
        assert one["digest"] == undisturbed["digest"], result.said
        assert one["history"] == undisturbed["history"]
    assert "Phases has begun afresh in a rank that joins, without the batches of the others" in result.stderr, result.said


def test_newcomers_take_what_the_model_does_not_know(tmp_path: Path):
    """And they are at the same place in the validation data, which others have read in each epoch."""
    found = []
    for plan, newcomers, left in (("", 0, {0, 1}), ("1:batch_end:4,0:with 3:1", 1, {2})):
        folder = tmp_path / f"{len(found)}"
        folder.mkdir()
        result = train(2, folder, plan, "unknown", "drawn", newcomers=newcomers).good()
        assert found_in(folder).keys() == left, result.said
        found.append(next(iter(found_in(folder).values())))
    undisturbed, disturbed = found
    assert disturbed["kept"] == pytest.approx(undisturbed["kept"], rel=1e-6)
    assert undisturbed["kept"][0] == pytest.approx(0.8, rel=1e-5)
    for name, values in undisturbed["history"].items():
        np.testing.assert_allclose(disturbed["history"][name], values, rtol=1e-4, err_msg=name)


def test_without_shards_a_newcomer_becomes_the_master_and_goes_on_with_files(tmp_path: Path):
    losses = []
    for plan, newcomers, left in (("", 0, {0, 1}), ("0:batch_end:4,1:with 3:1", 1, {2})):
        folder = tmp_path / f"{len(losses)}"
        folder.mkdir()
        result = train(2, folder, plan, "files", "checkpoint", "generator", newcomers=newcomers).good()
        assert found_in(folder).keys() == left, result.said
        losses.append([one["history"] for one in found_in(folder).values()])
        lines = (folder / "log.csv").read_text().splitlines()
        assert [line.partition(",")[0] for line in lines] == ["epoch", *map(str, range(8))], lines
        assert sorted(folder.glob("checkpoints/*"))[-1].name.endswith("step000000080.npz"), [*folder.glob("checkpoints/*")]
    for disturbed in losses[1]:
        for name, values in losses[0][0].items():
            np.testing.assert_allclose(disturbed[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("option", "reason"),
    {
        "model": "this rank cannot join the others: activation of Dense 'dense' is tanh here, and relu on the others",
        "data": "its data is not the others', or in another order: give a seed",
        "collective": "tnt.broadcast: this rank joins a job that runs",
        "twice": "the others are in training 2 of the script",
        "error": "ValueError: a newcomer's",
    }.items(),
)
def test_a_newcomer_that_cannot_take_part_ends_alone(tmp_path: Path, option: str, reason: str):
    begin = "1:batch_end:14" if option == "twice" else "1:batch_end:4"
    result = train(2, tmp_path, begin, option, newcomers=1, most=3).good()
    assert found_in(tmp_path).keys() == {0}, result.said
    said = next(line for line in result.stderr.splitlines() if "tarantella: rank 2 (pid " in line and "exited" in line)
    assert "exited with code 1: " in said, result.said
    assert reason in said, result.said
    assert said.endswith("; 1 rank goes on (--elastic)")
    assert started(result) == 1


def test_no_more_start_than_were_asked_for(tmp_path: Path):
    result = train(2, tmp_path, "1:batch_end:2,2:ask:1", newcomers=1).good()
    assert started(result) == 1
    assert found_in(tmp_path).keys() == {0}, result.said


@pytest.mark.parametrize(
    ("first", "most", "plan", "left"),
    [
        pytest.param(1, 3, "0:with 3:1", {1, 2}, id="from 1 to 3, and then rank 0 is lost"),
        pytest.param(2, 5, "", {0, 1, 2, 3, 4}, id="beyond the number of shards"),
    ],
)
def test_a_job_that_grows_keeps_the_bits(undisturbed, tmp_path: Path, first: int, most: int, plan: str, left: set[int]):
    flags = ["--reproducible", SHARDS]
    result = grow(first, most, tmp_path, plan, "batch_norm", "dropout", flags=flags).good()
    assert result.stderr.count("starts in a slot that was added (--max-ranks)") == most - first, result.said
    assert f"ranks by now: {most}" in result.stderr, result.said
    found = found_in(tmp_path)
    assert found.keys() == left, result.said
    for one in found.values():
        assert one["ranks"] == len(left)
        assert one["digest"] == undisturbed["digest"], result.said
        assert one["history"] == undisturbed["history"]


def test_a_job_grows_beyond_the_samples_of_its_batches(tmp_path: Path):
    """A batch has as many samples as the job had ranks when it began, and so does the learning rate go by that number."""
    losses = []
    for most in (2, 4):
        folder = tmp_path / f"{most}"
        folder.mkdir()
        result = grow(2, most, folder, "", "scaled", "epochs=12").good()
        found = found_in(folder)
        assert found.keys() == {*range(most)}, result.said
        assert {one["ranks"] for one in found.values()} == {most}
        losses.append([one["history"] for one in found.values()])
    for grown in losses[1]:
        for name, values in losses[0][0].items():
            np.testing.assert_allclose(grown[name], values, rtol=1e-5, err_msg=name)


def test_a_job_whose_new_slots_are_wrong_goes_on(tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    own = ["--elastic", "--max-ranks", 4, "--hostfile", hosts]
    result = run_ranks(2, SCRIPT, tmp_path, "", "slow", "grow=many", launcher_options=own, timeout=240).good()
    assert result.stderr.count(f"{hosts}:1: unexpected 'slots=many'") == 1, result.said
    assert "the job goes on with the slots that it had" in result.stderr
    assert found_in(tmp_path).keys() == {0, 1}, result.said
