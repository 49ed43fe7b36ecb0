"""`tnt.Model` as an object: it looks like the Keras model inside, says what it cannot do, and prints once."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/model_api.py")


def test_looks_like_the_model_inside(found):
    expected = [True, True, True, "kept by the model", False, ["first", "second"], True, True, True, "AttributeError", True]
    assert found["looks_like_the_model_inside"] == [expected] * SIZE


def test_what_cannot_be_wrapped(found):
    for text, layer, nothing, strategy in found["what_cannot_be_wrapped"]:
        for error, name in ((text, "str"), (layer, "Dense"), (nothing, "NoneType")):
            assert error == ["TypeError", f"tnt.Model needs a Keras model, not {name}"]
        assert strategy[0] == "TypeError"
        assert "'data'" in strategy[1]


def test_hooks_leave_nothing(found):
    for on_model, on_optimizer in found["hooks_leave_nothing"]:
        assert not {"train_step", "test_step", "compute_loss", "get_metrics_result"} & set(on_model)
        assert not {"apply", "apply_gradients"} & set(on_optimizer)


def test_the_model_inside_stays_plain(found):
    for losses in found["the_model_inside_stays_plain"]:
        assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


def test_it_must_be_compiled(found):
    for of_fit, of_evaluate in found["not_compiled"]:
        for error, method in ((of_fit, "fit"), (of_evaluate, "evaluate")):
            assert error == ["RuntimeError", f"the model must be compiled before {method}: call tnt.Model.compile"]


NOT_AVAILABLE = {
    "reduction='none'": "UnsupportedError",
    "output is text": "UnsupportedError",
    "rows for 20 samples": "UnsupportedError",
    "micro-batch": "InvalidArgumentError",
    "micro-batch size is 0": "InvalidArgumentError",
    "training data: the dataset is empty": "InvalidArgumentError",
    "not batched": "ValueError",
    "OptionalSpec": "ValueError",
}


@pytest.mark.parametrize("name", ["a sample", "a sample, one label"])
def test_an_unbatched_dataset_is_told_both_ways_out(found, name):
    for errors in found["not_available"]:
        kind, text = errors[name]
        assert kind == "ValueError"
        assert "not batched" in text and "dataset.batch(B)" in text and "tnt_micro_batch_size=m" in text


@pytest.mark.parametrize("name", NOT_AVAILABLE)
def test_what_is_not_available_is_named(found, name):
    for errors in found["not_available"]:
        kind, text = errors[name]
        assert kind == NOT_AVAILABLE[name]
        assert name in text


@pytest.mark.parametrize("metric", ["Far", "Largest", "Smallest", "Median", "MedianOfArrays"])
def test_a_metric_of_ones_own(found, metric):
    for on_rank in found["metrics_of_ones_own"]:
        history, together, alone = on_rank[metric]
        assert together == pytest.approx(alone, rel=1e-6)
        plain = found["metrics_of_ones_own"][0]["plain"][metric]
        assert history == {key: pytest.approx(values, rel=1e-5) for key, values in plain.items()}


def test_a_metric_that_was_refused_stays_refused(found):
    for errors in found["a_metric_that_was_refused_stays_refused"]:
        assert [kind for kind, _ in errors] == ["UnsupportedError"] * 3


def test_callbacks_that_compute(found):
    for rank, (seen, val_loss, val_mae) in enumerate(found["callbacks_that_compute"]):
        for epoch, (alone, together, off) in enumerate(seen):
            assert together == pytest.approx([val_loss[epoch], val_mae[epoch]], rel=1e-6)
            assert off < 1e-6
            if rank == epoch:
                assert alone == pytest.approx(together, rel=1e-6)


def test_predictions_for_the_master(found):
    assert found["predictions_for_the_master"] == [[False, True], [True, True]]


def test_what_callbacks_of_predict_see(found):
    """Outputs of the rank's samples, in the form Keras gives them."""
    assert found["what_callbacks_of_predict_see"] == [[[8, 1], [8, 1], [5, 1]], [[7, 1], [7, 1], [5, 1]]]


def test_other_calls(found):
    for lengths, epochs in found["other_calls"]:
        assert lengths == ["MismatchError", "training data: batches is 5 on rank 1 and 4 on rank 0: it must be the same"]
        assert epochs == ["MismatchError", "fit: epochs is 2 on rank 1 and 1 on rank 0: it must be the same"]


def test_training_begins_with_rank_0s_state(found):
    assert found["training_begins_with_rank_0s_state"] == [[[1.0], 5 + 4]] * SIZE


def test_stats(found):
    for stats in found["stats"]:
        assert stats["steps"] == 2 * 4
        assert stats["bytes"] == 2 * 4 * 4 * (4 * 3 + 3 + 3 + 1)
        assert 0 < stats["busy_seconds"] < 60
        assert 0 < stats["exposed_seconds"] < 60


def test_every_rank_has_the_whole_history(found):
    first, second = found["history"]
    assert first == second
    assert set(first) == {"loss", "mae", "val_loss", "val_mae"}


def test_predictions(found):
    assert found["predictions"] == [[True, True]] * SIZE


def test_callbacks(found):
    (begun, files), (begun_too, no_files) = found["callbacks"]
    assert begun == begun_too == [0, 1, 0, 0]
    assert files == ["checkpoint.keras", "log.csv"]
    assert no_files == []


def test_tensors(found):
    assert found["tensors_of_tensorflow"] == [[[2.0, 4.0], [3]]] * SIZE


def test_the_master_alone_prints(found):
    master, other = found["printed"]
    assert master.count("Total params") == 1
    assert master.count("4/4 - ") == 2, "fit and evaluate"
    assert master.count("2/2 - ") == 1, "predict"
    assert other == ""
