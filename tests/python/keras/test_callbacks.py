"""Callbacks on two ranks: what serial Keras does, once or everywhere, and one error, one end, one state for all ranks."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

pytestmark = pytest.mark.long

SIZE = 2
CLOSE = 1e-6


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/callbacks.py", timeout=290)


def same_everywhere(on_ranks):
    assert all(on_rank == on_ranks[0] for on_rank in on_ranks), on_ranks
    return on_ranks[0]


# ------------------------------------------------------------------------------------------------- Keras' own, which decide


@pytest.mark.parametrize(
    ("name", "epochs"),
    [
        ("evaluation_between_steps", 2),
        ("batches_of_a_callback_between_steps", 2),
        ("early_stopping", 2),
        ("reduce_on_plateau", 6),
        ("learning_rate_scheduler", 4),
        ("swap_ema_weights", 4),
    ],
)
def test_decisions_are_serial_keras_own(found, name, epochs):
    ran, logs, weights, *alike = same_everywhere(found[name])
    assert ran == epochs
    assert logs < CLOSE
    assert weights < CLOSE
    assert all(alike)


def test_a_nan_on_one_rank_ends_all_in_the_same_step(found):
    steps, error, epochs = same_everywhere(found["terminate_on_nan"])
    assert steps == 3
    assert error[0] == "RuntimeError"
    assert "at batch 2" in error[1]
    assert epochs == 1  # what raises on all ranks alike ends nothing else


def test_the_master_speaks_for_all(found):
    said, *others = found["who_speaks"]
    assert said.count("LearningRateScheduler setting") == 2
    assert said.count("early stopping") == 1
    assert others == [""] * (SIZE - 1)


# --------------------------------------------------------------------------------------------- Keras' own, which write or show


def test_files_are_written_once_and_are_serial_keras_own(found):
    (serial, ours, logs, weights, board), *others = found["csv_and_checkpoints"]
    assert serial == ours
    assert {"log.csv", "best.keras", "board", "2-4.weights.h5"} <= set(ours)
    assert logs < CLOSE
    assert weights < CLOSE
    assert board == ["train", "validation"]
    assert [files for _, files in others] == [[]] * (SIZE - 1)


def test_tensorboard_on_all_ranks(found):
    folders = same_everywhere(found["tensorboard_everywhere"])
    everywhere = [f"all/{kind}/rank_{rank}" for kind in ("train", "validation") for rank in range(SIZE)]
    assert folders == sorted([*everywhere, "once/train", "once/validation"])


def test_one_rank_posts(found):
    assert found["remote_monitor"] == [[0, 1, 2, 3], *[[]] * (SIZE - 1)]


def test_one_progress_bar_with_serial_keras_numbers(found):
    (serial, ours), *others = found["progress"]
    assert "5/5 - loss: " in serial
    assert ours == serial
    assert [shown for _, shown in others] == [""] * (SIZE - 1)


def test_a_training_goes_on_where_it_was(found):
    for rank, (error, files, epochs, apart, left) in enumerate(found["backup_and_restore"]):
        assert error == ["KeyError", "'broken off'"]
        assert files == ([] if rank else ["latest.weights.h5", "training_metadata.json"])
        assert epochs == [2, 3]
        assert apart < CLOSE
        assert left == 0


def test_a_full_disk(found):
    for rank, (error, unchanged, files) in enumerate(found["disk_full"]):
        assert error[0] == ("TarantellaError" if rank else "OSError")
        assert "File too large" in error[1]
        assert rank == 0 or error[1].startswith("rank 0 failed: OSError")
        assert unchanged
        assert files == ["full.keras"]


# -------------------------------------------------------------------------------------------------------------- a user's


def test_every_hook_of_a_users_callback(found):
    epochs, logs, weights, same_calls, apart, same_params, numbers = same_everywhere(found["every_hook"])
    assert epochs == 2
    assert max(logs, weights, apart) < CLOSE
    assert same_calls
    assert same_params
    assert len(numbers) == 2 * (2 * 5 + 2 + 4) + 4  # loss and mae of each step, each validation, four of each epoch and of all


def test_lambdas(found):
    expected = [*(f"batch {batch}" for batch in range(5)), "epoch 0"]
    assert found["lambdas"] == [[*expected, "once"], *[expected] * (SIZE - 1)]


def test_wrapped_callbacks_run_where_they_are_told(found):
    for rank, (seen, has_model, same_logs, same_class, same_list, users_history) in enumerate(found["where_wrapped_ones_run"]):
        once, on_all, aggregated = seen
        assert on_all == aggregated > 0
        assert once == 0 if rank else once > on_all  # evaluate was seen as well
        assert has_model == [rank == 0, True]
        assert same_logs
        assert same_class
        assert same_list
        assert users_history


def test_what_cannot_be_wrapped(found):
    *decide, unset, unset_all, aggregate, twice, backup, pipelined, both, no_callback, allowed = same_everywhere(
        found["wrapping_is_refused"]
    )
    for error in [*decide, unset]:
        assert error[0] == "ValueError"
        assert error[1].startswith("cannot run callback of type")
        assert "on a single rank" in error[1]
    for error in (unset_all, aggregate):
        assert error[0] == "ValueError"
        assert "cannot aggregate callback logs if the callback runs on a single rank" in error[1]
    assert twice[0] == backup[0] == pipelined[0] == "ValueError"
    assert "wrapped" in twice[1]
    assert "BackupAndRestore" in backup[1]
    assert both[0] == "UnsupportedError"
    assert no_callback == ["TypeError", "tnt.callbacks.Callback needs a Keras callback, not str"]
    assert allowed == []


# ------------------------------------------------------------------------------------------------ on one rank only


def test_a_failure_in_any_hook_is_one_error_on_all_ranks(found):
    *others, failed = found["failure_in_each_hook"]
    assert failed.pop("after") == 4
    assert len(failed) == 12
    assert set(map(tuple, failed.values())) == {("ValueError", "not with me")}, failed
    for other in others:
        assert other.pop("after") == 4
        text = f"rank {SIZE - 1} failed: ValueError: not with me"
        assert set(map(tuple, other.values())) == {("TarantellaError", text)}, other


def test_a_callback_that_only_the_master_has(found):
    error, *others = found["failure_of_the_master_alone"]
    assert error == ["ValueError", "not with me"]
    assert others == [["TarantellaError", "rank 0 failed: ValueError: not with me"]] * (SIZE - 1)


def test_one_rank_stops_all_in_the_same_step(found):
    assert same_everywhere(found["stop_on_one_rank"]) == {
        "on_train_batch_begin": [2, 1, 1],
        "on_train_batch_end": [2, 1, 1],
        "on_epoch_begin": [6, 2, 1],
        "on_epoch_end": [10, 2, 1],
        "on_test_batch_end": [5, 1, 1],
        "on_test_end": [10, 2, 1],
    }
    assert found["stop_on_all_ranks"] == [[3]] * SIZE


def test_what_one_rank_changes(found):
    changed = same_everywhere(found["changes_on_one_rank"])
    kind, text = changed.pop("weights on_train_batch_end")
    assert kind == "MismatchError"
    assert f"the weights of rank {SIZE - 1} differ from rank 0's at the end of the epoch" in text
    for name, result in changed.items():
        if name.startswith("weights"):
            assert result is True
        else:
            rate, weights_equal, messages = result
            assert rate == pytest.approx(0.01)
            assert weights_equal
            assert messages == ["a callback has changed the learning rate on some ranks only: all ranks take the master's"]


def test_what_the_master_changes_counts(found):
    for rate, apart in found["rate_of_the_master"]:
        assert rate == pytest.approx(0.01 / 16)
        assert apart < CLOSE


# --------------------------------------------------------------------------------------------------------- time history


def test_time_history(found):
    for intervals, speeds_are_right, parts, bounded, steps in found["time_history"]:
        assert intervals == [[0, 2], [0, 2], [0, 1], [1, 2], [1, 2], [1, 1]]
        assert speeds_are_right
        assert parts == pytest.approx([1, 1], rel=0.01)
        assert bounded
        assert steps == [5, 5]
