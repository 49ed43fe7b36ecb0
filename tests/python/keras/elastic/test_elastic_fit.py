"""`tarantella --elastic`: ranks are lost in `fit`, and the others go on with the very step, to the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.launch import RANKS, Result, run_ranks

SCRIPT = RANKS / "keras/elastic.py"
SHARDS = 4

Found = dict[int, dict[str, Any]]
"""What ranks that were left have found, by the number with which they were started."""


def train(ranks: int, folder: Path, plan: str, *options: str, shards: int | None = None, flags: Any = (), **env: str) -> Result:
    reproducible = [] if shards is None else ["--reproducible", shards]
    return run_ranks(ranks, SCRIPT, folder, plan, *options, launcher_options=["--elastic", *reproducible, *flags], env=env)


def found_in(folder: Path) -> Found:
    return {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("[0-9].json"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of one rank: the bits are those of any number, and it takes the time of one."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train(1, folder, "", "batch_norm", "dropout", "more", shards=SHARDS).good()
    return found_in(folder)[0]


LOSSES = {
    "before they have joined, before fit, and in what fit does before its first batch": "0:start:1,2:joined:1,3:operation:4",
    "rank 0 and another one where fit compares ranks, and where it gives them weights": "0:operation:2,1:operation:9",
    "in forward, of rank 0, and again": "0:last:9,1:last:40,2:batch_end:25",
    "two at once in the first step, and one at the end": "1:batch_begin:1,3:batch_begin:1,0:train_end:1",
    "in the trial, and where epochs begin and end": "2:last:1,0:epoch_begin:2,1:epoch_end:2",
    "in the traces of the step": "1:trace of last:2,2:trace of last:3",
    "in the trace that a loss between steps has made necessary": "0:batch_end:5,1:trace of last:3",
    "when gradients are reduced, and metrics are not": "2:metric:30,3:metric:45",
    "in the validation": "3:test_begin:1,0:test_batch_end:2,1:test_end:3",
}


@pytest.mark.parametrize("plan", LOSSES.values(), ids=LOSSES.keys())
def test_the_bits_are_those_of_the_undisturbed_training(undisturbed, tmp_path: Path, plan: str):
    more = ["more"] if plan.endswith("batch_end:25") else []
    result = train(SHARDS, tmp_path, plan, "batch_norm", "dropout", *more, shards=SHARDS).good()
    lost = {int(one.partition(":")[0]) for one in plan.split(",")}
    found = found_in(tmp_path)
    assert found.keys() == set(range(SHARDS)) - lost, result.said
    for place, one in enumerate(found.values()):
        assert (one.pop("rank"), one.pop("ranks")) == (place, SHARDS - len(lost))
        expected = {name: undisturbed[name] for name in one}
        assert one["digest"] == expected["digest"], result.said
        assert one["history"] == expected["history"]
        if more:
            assert one["evaluated"] == pytest.approx(expected["evaluated"], rel=1e-6)
            np.testing.assert_allclose(one["predicted"], expected["predicted"], rtol=1e-5)
            assert one["again"].keys() == expected["again"].keys()
    for number in lost:
        assert f"rank {number} (pid " in result.stderr
    assert result.stderr.count("(--elastic)") == len(lost)


@pytest.mark.parametrize("shards", [SHARDS, None])
def test_ranks_are_lost_in_what_comes_after_fit(undisturbed, tmp_path: Path, shards: int | None):
    """In `evaluate`, the master in `predict`, and the next one where it writes a file."""
    plan = "1:test_batch_end:11,0:predict_batch_end:1,2:save:1"
    result = train(SHARDS, tmp_path, plan, "batch_norm", "dropout", "more", shards=shards).good()
    found = found_in(tmp_path)
    assert found.keys() == {3}, result.said
    assert result.stderr.count("was killed by SIGKILL") == 3
    assert found[3]["saved"]
    assert found[3]["traces"] == 3  # all in fit, when nobody was lost yet
    if shards is not None:
        assert found[3]["digest"] == undisturbed["digest"]
        assert found[3]["evaluated"] == pytest.approx(undisturbed["evaluated"], rel=1e-6)
        np.testing.assert_allclose(found[3]["predicted"], undisturbed["predicted"], rtol=1e-5)


def test_nothing_is_traced_twice(undisturbed):
    """TensorFlow does that if a trace makes variables. Traced are a trial, and the steps of training and of validation.

    Each of these two is traced for the last shard, and once for the three others. For ranks with one shard each see below.
    """
    assert undisturbed["traces"] == 5


def test_a_rank_is_lost_when_others_have_joined_and_others_have_not(undisturbed, tmp_path: Path):
    """Those that have are in fit's first collective by then."""
    result = train(SHARDS, tmp_path, "0:joined:1", "batch_norm", "dropout", "late=2", "late=3", shards=SHARDS).good()
    found = found_in(tmp_path)
    assert found.keys() == {1, 2, 3}, result.said
    for one in found.values():
        assert one["digest"] == undisturbed["digest"], result.said
        assert one["history"] == undisturbed["history"]


def test_weights_that_a_lost_master_alone_had_are_missed(tmp_path: Path):
    result = train(3, tmp_path, "0:operation:12", "loaded", "epochs=1").good()
    assert "all go on with those that rank 1 had. Load weights on all ranks" in result.stderr, result.said


EARLY = "1:last:20,3:metric:30,0:batch_begin:22"


def undisturbed_and_disturbed(
    folder: Path, *options: str, losses: str = EARLY, shards: int | None = None, undisturbed_on: int = 1
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a rank of an undisturbed training has found, and what rank 2 has, which is left alone.

    undisturbed_on: the number of ranks of the former. One takes the time of one.
    """
    found = []
    for ranks, plan, left in ((undisturbed_on, "", undisturbed_on), (SHARDS, losses, 1)):
        own = folder / f"{len(found)}"
        own.mkdir()
        result = train(ranks, own, plan, *options, shards=shards).good()
        assert len(found_in(own)) == left, result.said
        found.append(next(iter(found_in(own).values())))
    return found[0], found[1]


def test_weights_decay_once(tmp_path: Path):
    """The optimizer needs no gradient for that."""
    undisturbed, disturbed = undisturbed_and_disturbed(tmp_path, "decay", shards=SHARDS)
    assert disturbed["digest"] == undisturbed["digest"]
    assert disturbed["history"] == undisturbed["history"]


def test_what_a_step_changes_before_its_gradients_is_changed_once(tmp_path: Path):
    undisturbed, disturbed = undisturbed_and_disturbed(tmp_path, "decay", "early", undisturbed_on=SHARDS)
    assert disturbed["steps"] == undisturbed["steps"] >= 30
    for name, values in undisturbed["history"].items():
        np.testing.assert_allclose(disturbed["history"][name], values, rtol=1e-5, err_msg=name)


def test_ranks_are_lost_in_a_second_training(tmp_path: Path):
    """Its steps were traced, and its metrics made, in the first one."""
    losses = "0:test_batch_end:5,1:batch_end:25,3:test_batch_end:8"
    undisturbed, disturbed = undisturbed_and_disturbed(tmp_path, "twice", "early", losses=losses)
    for name, values in undisturbed["history"].items():
        np.testing.assert_allclose(disturbed["history"][name], values, rtol=1e-5, err_msg=name)


def test_ranks_are_lost_where_an_epoch_reads_its_metrics(tmp_path: Path):
    """What the others have read by then misses what those had seen."""
    undisturbed, disturbed = undisturbed_and_disturbed(tmp_path, losses="0:sums:1,1:sums:2,3:sums:3")
    for name, values in undisturbed["history"].items():
        np.testing.assert_allclose(disturbed["history"][name], values, rtol=1e-5, err_msg=name)


def test_sums_of_metrics_that_a_callback_has_reset_since_do_not_come_back(tmp_path: Path):
    """One rank is lost after the reset, in the next step, and the others when the metrics count again."""
    undisturbed, disturbed = undisturbed_and_disturbed(tmp_path, "reset", losses="1:batch_begin:4,3:last:30,0:batch_end:26")
    for name, values in undisturbed["history"].items():
        np.testing.assert_allclose(disturbed["history"][name], values, rtol=1e-5, err_msg=name)


def test_a_rank_that_is_a_step_behind_takes_it_from_one_that_is_not(undisturbed, tmp_path: Path):
    options = "batch_norm", "dropout", "behind=1+15"  # in the first step, and in the second one of the second epoch
    result = train(SHARDS, tmp_path, "2:batch_end:12,3:batch_end:12", *options, shards=SHARDS).good()
    found = found_in(tmp_path)
    assert found.keys() == {0, 1}, result.said
    for one in found.values():
        assert one["digest"] == undisturbed["digest"], result.said
        assert one["history"] == undisturbed["history"]


def test_without_shards_the_losses_are_those_of_the_undisturbed_training(tmp_path: Path):
    """The sums of the ranks that were lost, for the means over an epoch, are not lost with them.

    A rank that is behind begins with the learning rate that others had before they ran the same callbacks, whether it was lost
    in a step or where callbacks meet after one. If that was in the last step, it finds the end of the data as they do.
    """
    plans = {
        "": (),
        "1:metric:14,0:test_batch_end:4,3:batch_end:25": (),
        "2:batch_end:12,3:batch_end:12": ("behind=1+10+16", "unmet=4+18"),
    }
    folders = {plan: tmp_path / f"{i}" for i, plan in enumerate(plans)}
    for plan, folder in folders.items():
        folder.mkdir()
        result = train(4 if plan else 1, folder, plan, "relative", "filtered", *plans[plan]).good()
        assert "on some ranks only" not in result.stderr, result.said  # as one says that ran callbacks once more than others
        assert "the length of the training data is unknown" in result.stderr
    whole, *disturbed = (found_in(folder) for folder in folders.values())
    assert [found.keys() for found in disturbed] == [{2}, {0, 1}]
    for found in disturbed:
        for name, values in whole[0]["history"].items():
            np.testing.assert_allclose([*found.values()][-1]["history"][name], values, rtol=1e-5, err_msg=name)


def test_legacy_keras(tmp_path: Path):
    losses = []
    for plan in ("", "2:last:9,0:test_batch_end:4"):
        folder = tmp_path / f"{len(losses)}"
        folder.mkdir()
        train(3 if plan else 1, folder, plan, TF_USE_LEGACY_KERAS="1").good()
        losses += [one["history"] for one in found_in(folder).values()]
    for name, values in losses[0].items():
        np.testing.assert_allclose(losses[1][name], values, rtol=1e-5, err_msg=name)


def test_the_new_master_goes_on_with_files_and_output(tmp_path: Path):
    result = train(3, tmp_path, "0:last:25", "files", "checkpoint").good()
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["epoch", "0", "1", "2"], lines
    assert (tmp_path / "best.keras").exists()
    assert sorted(tmp_path.glob("checkpoints/*"))[-1].name.endswith("step000000030.npz"), [*tmp_path.glob("checkpoints/*")]
    assert "Epoch 3/3" in result.stdout
    assert found_in(tmp_path)[1]["rank"] == 0


def test_what_the_master_has_written_and_counted_is_not_lost_with_it(undisturbed, tmp_path: Path):
    """One master is lost within an epoch, after a backup, and the next one where the others have come to the epoch's end."""
    options = "batch_norm", "dropout", "files", "backup"
    result = train(SHARDS, tmp_path, "0:batch_end:15,1:epoch_end:2", *options, shards=SHARDS).good()
    for one in found_in(tmp_path).values():
        assert one["digest"] == undisturbed["digest"], result.said
    losses = undisturbed["history"]["loss"]
    lines = [line.split(",") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert [line[0] for line in lines] == ["epoch", "0", "1", "2"]
    assert [float(line[lines[0].index("loss")]) for line in lines[1:]] == losses
    assert json.loads((tmp_path / "backup/training_metadata.json").read_text()) == {"epoch": 2, "batch": 7}


@pytest.mark.parametrize(("ranks", "options"), [(2, []), (4, ["lost"])])
def test_what_evaluates_inside_of_fit_gets_its_own_data(tmp_path: Path, ranks: int, options: list[str]):
    script = RANKS / "keras/elastic_other_data.py"
    result = run_ranks(ranks, script, tmp_path, *options, launcher_options=["--elastic"]).good()
    assert result.stderr.count("was killed by SIGKILL") == (3 if options else 0), result.said
    found = found_in(tmp_path)
    assert len(found) == (1 if options else 2)
    for pairs in found.values():
        for ours, of_plain_keras in pairs:
            np.testing.assert_allclose(ours, of_plain_keras, rtol=1e-5)


def test_a_stopped_rank_is_left_behind(tmp_path: Path):
    seconds = "12"  # longer than a trace of the step takes on a busy machine, which the others would take for a loss as well
    result = train(3, tmp_path, "1:batch_end:-5", TNT_TIMEOUT=seconds).good()
    assert found_in(tmp_path).keys() == {0, 2}
    assert "rank 1 (pid " in result.stderr


def test_too_few_ranks_are_left(tmp_path: Path):
    result = train(3, tmp_path, "1:batch_end:5,2:batch_end:9", flags=["--min-ranks", "2"])
    assert result.code == 137
    assert not found_in(tmp_path)
    assert result.stderr.splitlines()[-1].startswith("tarantella: rank 2 (pid "), result.said


def test_an_error_of_the_script_ends_the_job(tmp_path: Path):
    result = train(2, tmp_path, "1:batch_end:error")
    assert result.code == 1
    assert "ValueError: a fault of the script" in result.stderr.splitlines()[-1], result.said


@pytest.mark.parametrize(
    ("option", "reason"),
    {
        "eager": "run_eagerly=True",
        "several": "steps_per_execution > 1",
        "own_data": "each rank has data of its own",
    }.items(),
)
def test_what_cannot_go_on_is_refused(tmp_path: Path, option: str, reason: str):
    result = train(2, tmp_path, "", option)
    assert result.code == 1
    last = result.stderr.splitlines()[-1]
    assert f"UnsupportedError: --elastic: {reason}" in last, result.said
    assert "--max-restarts" in last
