"""The callbacks that write files on the master: the next master goes on as if it had been the one before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow import keras

from tarantella import collectives, generations, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras.callback_placement import placement
from tarantella.keras.elastic import masters_callbacks
from tarantella.keras.elastic.masters_callbacks import MastersCallbacks

LOGS = {"loss": 0.5, "accuracy": 0.5}


class Ranks:
    """The master and the next one, in this process. Each has a model and callbacks of its own, and writes the same files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, make: Callable[[], list[Any]]) -> None:
        self.at_work = 0  # the rank that this process is at the moment
        self.master = 0
        self.outcomes: list[Any] = []
        monkeypatch.setattr(runtime, "is_master_rank", lambda: self.at_work == self.master)
        monkeypatch.setattr(collectives, "as_one", self._as_one)
        monkeypatch.setattr(collectives, "broadcast_object", lambda own, root=0: own)
        monkeypatch.setattr(masters_callbacks, "all_gather_object", lambda own: [own, own])
        self.models = [_model(), _model()]
        self.callbacks = [make(), make()]
        self._loses: str | None = None
        self.fits: list[MastersCallbacks] = []
        self._placed: list[Any] = []
        for rank in (0, 1):
            self.at_work = rank
            self._placed.append(placement.for_evaluate(self.callbacks[rank]))
            self.fits.append(MastersCallbacks(self.callbacks[rank]))
            for callback in self._placed[rank]:
                callback.set_params({"epochs": 3})
                callback.set_model(self.models[rank])
            self.fits[rank].begin(self._placed[rank])

    def come_to(self, hook: str, *arguments: Any, loses: str | None = None) -> None:
        """All ranks that are left come to a hook.

        loses: the master in its operation: `before` it has run the hook, `after` it has; `behind`: a third rank knows of that.
        """
        if self.master == 0:
            self.at_work, self.outcomes = 0, []
            if loses != "before":
                self._call(hook, arguments)
        self.at_work = 1
        self._loses = loses
        self._call(hook, arguments)

    def lose_master(self) -> None:
        self.at_work = self.master = 1
        self.fits[1].take_over()

    def _call(self, hook: str, arguments: Any) -> None:
        for callback in self._placed[self.at_work]:
            getattr(callback, hook)(*arguments)

    def _as_one(self, operation: Callable[[], Any]) -> Any:
        if self.at_work == 0:
            self.outcomes.append(operation())
            return self.outcomes[-1]
        if self._loses is not None:
            assert operation() is None
            how, self._loses = self._loses, None
            self.lose_master()
            if how == "behind":
                return self.outcomes.pop(0)
        if self.master == 1:
            return operation()
        operation()
        return self.outcomes.pop(0)


def _model() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _begin(ranks: Ranks) -> None:
    ranks.come_to("on_train_begin")
    ranks.come_to("on_epoch_begin", 0)


@pytest.mark.parametrize("how", ["before", "after", "behind"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_log_has_a_row_of_each_epoch(monkeypatch, tmp_path: Path, how: str, epoch: int):
    """Its columns are those of the first one, where the master is lost at the end of an epoch that validates, too."""
    ranks = Ranks(monkeypatch, lambda: [keras.callbacks.CSVLogger(tmp_path / "log.csv")])
    ranks.come_to("on_train_begin")
    for number in range(3):
        ranks.come_to("on_epoch_begin", number)
        logs = LOGS | ({"val_loss": 0.25} if number else {})
        ranks.come_to("on_epoch_end", number, logs, loses=how if number == epoch else None)
    ranks.come_to("on_train_end")
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.count(",") for line in lines] == [4] * 4
    assert [line.split(",")[0] for line in lines] == ["epoch", "0", "1", "2"]
    assert [line.split(",")[4] for line in lines] == ["val_loss", "NA", "0.25", "0.25"]


def test_a_log_that_the_training_has_not_begun_is_written_anew(monkeypatch, tmp_path: Path):
    (tmp_path / "log.csv").write_text("epoch,of an earlier training\n0,1\n")
    ranks = Ranks(monkeypatch, lambda: [keras.callbacks.CSVLogger(tmp_path / "log.csv")])
    ranks.come_to("on_train_begin", loses="before")
    ranks.come_to("on_epoch_begin", 0)
    ranks.come_to("on_epoch_end", 0, LOGS)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [["epoch", "accuracy"], ["0", "0.5"]]


@pytest.mark.parametrize("how", ["before", "after", "behind"])
def test_the_best_model_is_kept(monkeypatch, tmp_path: Path, how: str):
    path = str(tmp_path / "best.weights.h5")
    options = {"monitor": "loss", "save_best_only": True, "save_weights_only": True}
    ranks = Ranks(monkeypatch, lambda: [keras.callbacks.ModelCheckpoint(path, **options)])
    _begin(ranks)
    for epoch, (loss, loses) in enumerate([(0.5, None), (0.25, how), (0.3, None)]):
        for model in ranks.models:
            model.set_weights([np.full_like(one, epoch) for one in model.get_weights()])
        ranks.come_to("on_epoch_end", epoch, {"loss": loss}, loses=loses)
    assert ranks.callbacks[1][0].best == 0.25
    ranks.models[0].load_weights(path)
    assert np.all(ranks.models[0].get_weights()[0] == 1)


def _backup(folder: Path) -> Callable[[], list[Any]]:
    return lambda: [keras.callbacks.BackupAndRestore(folder, save_freq=4, delete_checkpoint=False)]


def _note_saving(model: Any) -> list[str]:
    """The files into which the model's weights are saved from now on."""
    saved: list[str] = []
    original = model.save_weights

    def save(path: Any, *args: Any, **kwargs: Any) -> None:
        saved.append(str(path))
        original(path, *args, **kwargs)

    model.save_weights = save
    return saved


def test_a_backup_is_not_restored_and_batches_are_counted_on(monkeypatch, tmp_path: Path):
    ranks = Ranks(monkeypatch, _backup(tmp_path))
    _begin(ranks)
    for batch in range(6):
        ranks.come_to("on_train_batch_end", batch, LOGS)
    ranks.models[1].set_weights([np.full_like(one, 9) for one in ranks.models[1].get_weights()])
    ranks.lose_master()
    assert all(np.all(one == 9) for one in ranks.models[1].get_weights())
    saved = _note_saving(ranks.models[1])
    counts = []
    for batch in range(6, 13):
        ranks.come_to("on_train_batch_end", batch, LOGS)
        counts.append(len(saved))
    assert counts == [0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("how", ["before", "after", "behind"])
def test_a_master_that_is_lost_in_a_backup_is_followed(monkeypatch, tmp_path: Path, how: str):
    ranks = Ranks(monkeypatch, _backup(tmp_path))
    _begin(ranks)
    saved = _note_saving(ranks.models[1])
    for batch in range(8):
        ranks.come_to("on_train_batch_end", batch, LOGS, loses=how if batch == 3 else None)
        assert len(saved) == [0, 0, 0, 1, 1, 1, 1, 2][batch]


def test_a_backup_is_restored_where_no_rank_has_what_the_last_master_has_restored(monkeypatch, tmp_path: Path):
    first = Ranks(monkeypatch, _backup(tmp_path))
    _begin(first)
    first.models[0].set_weights([np.full_like(one, 9) for one in first.models[0].get_weights()])
    for batch in range(4):
        first.come_to("on_train_batch_end", batch, LOGS)
    ranks = Ranks(monkeypatch, _backup(tmp_path))
    ranks.come_to("on_train_begin", loses="after")
    assert all(np.all(one == 9) for one in ranks.models[1].get_weights())


def test_a_callback_that_begins_late_leaves_the_model_as_it_is(monkeypatch, caplog):
    class Zero(keras.callbacks.CSVLogger):
        def __init__(self) -> None:
            super().__init__("unused")

        def on_train_begin(self, logs: Any = None) -> None:
            self.model.set_weights([0 * one for one in self.model.get_weights()])

    ranks = Ranks(monkeypatch, lambda: [Zero()])
    _begin(ranks)
    ranks.models[1].set_weights([np.full_like(one, 9) for one in ranks.models[1].get_weights()])
    with caplog.at_level("WARNING", logger=runtime.logger.name):
        ranks.lose_master()
    assert all(np.all(one == 9) for one in ranks.models[1].get_weights())
    assert "Zero has changed variables of the model" in caplog.text


def test_a_step_of_a_tensorboard_is_counted_on_all_ranks(monkeypatch, tmp_path: Path):
    ranks = Ranks(monkeypatch, lambda: [keras.callbacks.TensorBoard(tmp_path, write_graph=False)])
    _begin(ranks)
    for batch in range(3):
        ranks.come_to("on_train_batch_begin", batch)
    ranks.lose_master()
    assert vars(ranks.callbacks[1][0])["_global_train_batch"] == 3


def test_a_newcomer_that_lacks_a_callback_is_refused(monkeypatch, tmp_path: Path):
    ranks = Ranks(monkeypatch, _backup(tmp_path))
    monkeypatch.setattr(generations, "refusal", UnsupportedError)
    with pytest.raises(UnsupportedError, match="no callback BackupAndRestore here"):
        MastersCallbacks([]).join(ranks.fits[0].progress())


def test_callbacks_that_not_all_ranks_have_are_named_in_a_warning(monkeypatch, tmp_path: Path, caplog):
    ranks = Ranks(monkeypatch, _backup(tmp_path))
    given: list[Any] = []
    monkeypatch.setattr(masters_callbacks, "all_gather_object", lambda own: given.append(own) or [given[0], own])
    with caplog.at_level("WARNING", logger=runtime.logger.name):
        MastersCallbacks(ranks.callbacks[0]).begin([])
        assert not caplog.text
        MastersCallbacks([]).begin([])
    assert "another rank was not given" in caplog.text
