"""Packages on top of Keras: classes, callbacks and habits give what they give in plain Keras, or an error that says why."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import BOTH
from support.launch import RANKS


@pytest.fixture(scope="module", params=BOTH)
def found(request):
    ranks, env = request.param
    return Findings(ranks, RANKS / "keras/clients.py", env={**env, "TNT_LOG_LEVEL": "INFO"}, timeout=240)


def test_own_methods_get_the_users_arguments(found):
    own_loops = [*found["own_methods_for_single_batches"], *found["an_own_loop_over_single_batches"]]
    for difference, size in [*(case for of_rank in found["own_fit_evaluate_and_predict"] for case in of_rank), *own_loops]:
        assert difference <= 1e-5
        assert size > 0
    assert found["an_own_predict_on_the_master_alone"] == [[False, 0], [True, 1]]


def test_a_table_of_words_is_no_variable(found):
    for difference, size in found["adapted_words"]:
        assert difference <= 1e-5
        assert size > 0


def test_functions_are_made_anew_where_a_client_asks_keras_for_new_ones(found):
    for stale, new, stale_before_force, forced in found["functions_made_anew"]:
        assert stale == pytest.approx(1)
        assert new == pytest.approx(3)
        assert stale_before_force == pytest.approx(1)
        assert forced == pytest.approx(3)
    for quantized in found["quantized"]:
        if quantized:
            difference_from_model, changed, loss_changed = quantized
            assert difference_from_model < 1e-4
            assert changed > 1e-3
            assert loss_changed > 0


def test_what_a_callback_saves_is_whole_and_written_once(found):
    expected = {
        "by_method": (["method0.keras", "method1.keras"], []),
        "by_function": (["function0.keras", "function1.keras"], []),
        "by_rank": (["rank0_0.keras", "rank0_1.keras"], ["rank1_0.keras", "rank1_1.keras"]),
        "by_master": (["master0.keras", "master1.keras"], []),
        "by_other_rank": ([], ["other0.h5", "other1.h5"]),
    }
    for rank, of_rank in enumerate(found["saves_of_a_callback"]):
        assert of_rank == {way: [True, names[rank]] for way, names in expected.items()}
    written = found["weights_of_a_callback"]
    assert written == [[["weights.weights.h5"] * 2, 2], [[], 2]]


def test_a_spread_optimizer_is_saved_whole(found):
    for rank, of_rank in enumerate(found["a_save_with_a_spread_optimizer"]):
        assert of_rank in ([], [True, 4, True, 2 if rank == 0 else 0])


def test_a_save_that_fails_fails_on_all_ranks(found):
    for kind, text in found["a_save_that_fails"]:
        assert kind in ("FileNotFoundError", "TarantellaError")
        assert "missing" in text


def test_a_checkpoint_manager_writes_in_turn(found):
    assert found["a_checkpoint_manager_in_a_callback"] == [[["ckpt-2.index", "ckpt-3.index"], True]] * 2


def test_an_error_of_a_shared_file_says_what_to_do(found):
    for _, text in found["a_file_that_another_rank_has"]:
        assert "it is there" in text
        assert "tnt.callbacks.Callback(callback)" in text


def test_a_cache_in_a_file_is_each_ranks_own(found):
    assert found["a_cache_in_a_file"] == [[True]] * 2


def test_saved_datasets_and_snapshots_are_each_ranks_own(found):
    for rank, (saved, saved_by_old_name, snapshot, folders) in enumerate(found["a_saved_dataset_and_a_snapshot"]):
        assert saved == saved_by_old_name == list(range(rank, 20 + rank)), "the master's is in the folder itself"
        assert snapshot == saved * 2
        assert folders == ["saved0", "saved0.rank1", "saved1", "saved1.rank1", "snapshot.rank0", "snapshot.rank1"]


@pytest.mark.parametrize(
    ("what", "key", "of_rank_1", "of_master"),
    [
        ("activation", "activation of Dense 'a'", "tanh", "relu"),
        ("regularizer", "l2 of Dense 'a'", "0.0001", "0.1"),
        ("dropout", "rate of Dropout 'a'", "0.5", "0.1"),
        ("loss", "compile.loss", "mae", "mse"),
        ("own loss", "compile.loss (its factor)", "2", "1"),
        ("metric", "compile.metrics[0]", "mse", "mae"),
        ("rate", "optimizer.learning_rate of SGD", "0.001", "0.01"),
        ("momentum", "optimizer.momentum of SGD", "0.9", "0.5"),
        ("beta", "optimizer.beta_2 of Adam", "0.9", "0.999"),
        ("schedule", "optimizer.learning_rate.decay_rate of SGD", "0.5", "0.9"),
        ("class", "optimizer.class of", "Nadam", "Adam"),
        ("lambda", "function (its code) of Lambda 'a'", "", ""),
    ],
)
def test_models_that_differ_are_refused_before_the_first_step(found, what, key, of_rank_1, of_master):
    errors = [of_rank[what] for of_rank in found["models_that_differ"]]
    assert errors[0] == errors[1], "all ranks say the same"
    kind, text = errors[0]
    assert kind == "MismatchError"
    assert key in text
    assert f"{of_rank_1} on rank 1" in text
    assert f"{of_master} on rank 0" in text


def test_the_same_models_pass(found):
    for errors, said in found["models_that_are_the_same"]:
        assert errors == [[], [], []]
        assert len(said) == 1
        assert "plain (Plain)" in said[0]


def test_weights_are_compared_after_each_epoch(found):
    for kind, text in found["weights_that_drift"]:
        assert kind == "MismatchError"
        assert "at the end of the epoch" in text
        assert "a/kernel" in text


def test_a_file_does_not_lose_what_a_rank_has_trained_by_itself(found):
    for by_all, by_master, by_none in found["a_loop_without_an_optimizer"]:
        assert by_all[0] == "MismatchError"
        assert "d/kernel, which rank 1 has changed by itself" in by_all[1]
        assert by_master == by_none == []


def test_no_call_loses_what_a_rank_has_trained_by_itself(found):
    for evaluate, *alike, predict, also_alike, on_master, new, warnings in found["what_calls_lose"]:
        for call, (kind, text) in (("evaluate", evaluate), ("predict", predict)):
            assert kind == "MismatchError"
            assert f"{call} takes the master's; the first that differs is " in text
            assert "d/kernel, which rank 1 has changed by itself" in text
        assert alike == [[], []]
        assert also_alike == on_master == new == []
        assert len(warnings) == 1
        assert "fit takes the master's" in warnings[0]


def test_a_tuner_searches_alike_on_all_ranks(found):
    master, other = found["tuners"]
    assert [search[:2] for search in master] == [search[:2] for search in other]
    assert [search[1] for search in master] == [[], ["oracle.json"], []], "the second goes on with the first"
    assert isinstance(master[0][0], int)
    assert master[2][0] == 5
    assert all(search[2] for search in master)
    assert not any(search[2] for search in other)


def test_data_for_validation_learn_of_epochs(found):
    for plain, on_ranks in found["hooks_of_validation_data"]:
        assert on_ranks == plain
        assert plain[0]
