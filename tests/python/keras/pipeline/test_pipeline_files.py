"""Files of pipelines: checkpoints from which others go on, and what callbacks write."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Findings]:
    """What each rank of the jobs of 1 and 2 ranks has found. The second one begins with checkpoints of the first."""
    env = {"CHECKPOINTS": str(tmp_path_factory.mktemp("checkpoints"))}
    return {n: Findings(n, RANKS / "keras/pipeline/files.py", timeout=240, env=env, optimized=True) for n in (1, 2)}


def test_goes_on_from_checkpoints_of_other_ranks(found):
    """The end is that of the training that was never stopped."""
    serial = found[1]["not_stopped"][0]
    assert [found[n]["stops_with_checkpoints"] for n in (1, 2)] == [["KeyError"], ["KeyError"] * 2]
    for rank, outcome in enumerate(found[2]["goes_on_from_checkpoints"]):
        assert list(outcome) == ["in stages", "without"]
        for way, continued in outcome.items():
            assert continued == {name: serial[name] for name in continued}, (rank, way)


def test_callbacks_that_write_files_and_keep_the_best_weights(found):
    for rank in range(2):
        outcome = found[2]["callbacks_that_write"][rank]
        of_all, of_master, first, second = outcome["files"]
        assert outcome["epochs"] == 2
        assert of_all == of_master == second != first  # the files of the second epoch
        assert outcome["restored"] == first != outcome["trained on"]
        assert outcome["steps"] == [8, 8, 4]
        assert outcome["slots"] == [outcome["slots"][0]] * 3
        assert outcome["slots"][0] > 16  # the states of Adam of all variables


def test_goes_on_from_a_backup_in_other_stages(found):
    serial = found[1]["backup_and_restore"][0]
    for outcome in found[2]["backup_and_restore"]:
        assert outcome["stopped"][0] == "KeyError"
        assert outcome["restored"].pop("epochs") == [1]
        assert outcome["restored"] == {name: serial[name] for name in outcome["restored"]}
    damaged = [outcome["damaged"] for outcome in found[2]["backup_and_restore"]]
    assert damaged[0][0] == "OSError"
    assert damaged[1][0] == "TarantellaError"
    assert damaged[0][1] in damaged[1][1]
