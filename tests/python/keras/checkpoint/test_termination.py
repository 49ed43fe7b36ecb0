"""SIGTERM in `fit` with a `Checkpoint`: all ranks save after the same step and end, and the next start goes on from there."""

from __future__ import annotations

import signal
import threading

import pytest

from support.launch import RANKS, run_ranks
from tarantella.keras.checkpoint.termination import EXIT_CODE, TerminationNotice

SCRIPT = RANKS / "keras" / "checkpoint" / "terminated.py"


def test_a_training_goes_on_after_sigterm(tmp_path):
    """To the launcher, which tells all ranks; to one rank alone; to that rank in the middle of a validation."""
    said = "SIGTERM: the training ends at epoch "
    by_launcher = "interrupted; ending 2 ranks, which have 30 s for it (--grace)"
    for target, epochs in (("launcher", by_launcher), ("rank", ""), ("validation", "epoch 4, step 9")):
        ended = run_ranks(2, SCRIPT, tmp_path, target, timeout=90, env={"TNT_LOG_LEVEL": "WARNING"})
        assert ended.code == EXIT_CODE == 143 and not ended.left_behind, ended.said
        assert said in ended.stderr and epochs in ended.stderr, ended.said
    assert len(list((tmp_path / "checkpoints").glob("fit1-step*.npz"))) == 2
    assert run_ranks(2, SCRIPT, tmp_path, "nobody", timeout=90).good().stdout == "equal\n"


@pytest.fixture
def default_action():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_signal_is_noted_and_takes_effect_later(default_action):
    notice = TerminationNotice()
    notice.begin()
    signal.raise_signal(signal.SIGTERM)
    assert notice.received
    notice.end()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    notice.take_effect()
    assert ended


def test_a_handler_of_the_script_stays(default_action):
    received = []
    signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    notice = TerminationNotice()
    notice.begin()
    signal.raise_signal(signal.SIGTERM)
    notice.end()
    notice.take_effect()
    assert received == [True] and not notice.received


def test_other_threads_leave_the_signal_alone(default_action):
    notice = TerminationNotice()
    thread = threading.Thread(target=notice.begin)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
