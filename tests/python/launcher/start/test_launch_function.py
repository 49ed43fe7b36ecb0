"""`tnt.launch`: functions of notebooks and scripts on several ranks, what they return, and how they fail."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import tarantella as tnt
from conftest import alive, wait_until
from tarantella.launcher.start.function import Folder
from tarantella.launcher.start.results import JobResult

# as if they were a notebook's: this module is none that a rank could import
cloudpickle.register_pickle_by_value(sys.modules[__name__])

OFFSET = 10


class Value:
    def __init__(self, number: float) -> None:
        self.number = number


def summed(factor, exponent=1):
    print("printed by rank", tnt.get_rank())
    total = tnt.all_reduce(np.arange(4.0) * (tnt.get_rank() + 1) ** exponent)
    return Value(factor * total + OFFSET), tnt.get_rank(), tnt.get_size()


def failing(name):
    if tnt.get_rank() == 1:
        raise KeyError(name)
    tnt.barrier()


def killed():
    if tnt.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tnt.barrier()


@pytest.mark.parametrize("n", [2, 3])
def test_every_rank_returns_its_value(n, capsys):
    found = tnt.launch(summed, n, (2,), {"exponent": 2})
    expected = 2 * np.arange(4.0) * sum((rank + 1) ** 2 for rank in range(n)) + OFFSET
    assert [(rank, size) for _, rank, size in found] == [(rank, n) for rank in range(n)]
    for value, _, _ in found:
        assert type(value) is Value
        np.testing.assert_array_equal(value.number, expected)
    out, err = capsys.readouterr()  # which are no descriptors, as in a notebook
    assert out == "printed by rank 0\n"
    assert err.startswith(f"tarantella: {n} ranks on ")


def test_output_goes_where_the_caller_prints():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(None):
        assert tnt.launch(lambda: print("Grüße", end=""), n=1) == [None]
    assert out.getvalue() == "Grüße"


def test_an_exception_comes_back_with_its_rank_and_traceback():
    with pytest.raises(tnt.RankFailedError) as caught:
        tnt.launch(failing, n=2, args=("mine",))
    error = caught.value
    assert error.rank == 1
    assert "rank 1 (pid " in str(error) and "KeyError: 'mine'" in str(error)
    assert str(error).endswith(error.traceback)
    first, *rest = error.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert rest[0].endswith("in failing") and __file__ in rest[0]  # nothing of ours above it
    assert isinstance(error, tnt.TarantellaError)


def test_a_killed_rank_is_named():
    with pytest.raises(tnt.RankFailedError, match=r"rank 1 \(pid \d+\) was killed by SIGKILL") as caught:
        tnt.launch(killed, n=2)
    assert (caught.value.rank, caught.value.traceback) == (1, "")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: sys.exit(0), "rank 0 ended before the function had returned"),
        (lambda: sys.exit(3), r"rank 0 \(pid \d+\) exited with code 3"),
        (threading.Lock, "what the function returned on rank 0 cannot be sent back: TypeError: cannot pickle '_thread.lock'"),
        (lambda: tnt.launch(print), "tnt.launch starts ranks, and this process is a rank already"),
    ],
    ids=["exit 0", "exit 3", "unpicklable", "nested"],
)
def test_what_is_no_value_is_an_error(function, text):
    with pytest.raises(tnt.RankFailedError, match=text) as caught:
        tnt.launch(function, n=1)
    assert caught.value.rank == 0


def test_a_function_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with pytest.raises(tnt.InvalidArgumentError, match="the function '<lambda>' cannot be sent to the ranks: TypeError"):
        tnt.launch(lambda: lock, n=2)
    with pytest.raises(tnt.InvalidArgumentError, match="args cannot be sent to the ranks: TypeError"):
        tnt.launch(print, n=2, args=(lock,))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": 0}, "n=0: expected a whole number of ranks from 1 to 512"),
        ({"n": 513}, "n=513: expected"),
        ({"n": True}, "n=True: expected"),
        ({"n": 1.5}, "n=1.5: expected"),
        ({"n": "2"}, "n='2': expected"),
        ({"n": 1, "timeout": 0}, "timeout=0: expected seconds above 0, or None"),
        ({"n": 1, "args": "ab"}, "args='ab': expected a tuple"),
        ({"n": 1, "args": 3}, "args=3: expected a tuple"),
    ],
)
def test_nonsense_is_refused(arguments, text):
    with pytest.raises(tnt.InvalidArgumentError, match=text.replace("(", r"\(")):
        tnt.launch(print, **arguments)
    with pytest.raises(tnt.InvalidArgumentError, match="3 is not a function"):
        tnt.launch(3)


def test_settings_that_make_no_sense_are_refused(monkeypatch):
    monkeypatch.setenv("TNT_TIMEOUT", "soon")
    with pytest.raises(tnt.RankFailedError, match="TNT_TIMEOUT=soon: expected a number of seconds") as caught:
        tnt.launch(print, n=2)
    assert caught.value.rank is None


def test_ranks_are_ended_after_the_timeout(tmp_path):
    def sleep(folder):
        (Path(folder) / str(tnt.get_rank())).write_text(str(os.getpid()))
        tnt.barrier()
        time.sleep(600)

    for timeout in (2, 10, 50):  # a busy machine may not even have started them in 2 s
        with pytest.raises(tnt.DeadlineError, match=f"the ranks had not ended after timeout={timeout} s and were ended"):
            tnt.launch(sleep, n=2, args=(str(tmp_path),), timeout=timeout)
        if len(list(tmp_path.iterdir())) == 2:
            break
    pids = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not any(map(alive, pids))


SCRIPT = """
    import os, sys, time
    from pathlib import Path
    import tarantella as tnt

    def sleep(folder):
        tnt.barrier()
        (Path(folder) / f"pid{tnt.get_rank()}").write_text(str(os.getpid()))
        tnt.barrier()
        time.sleep(600)

    try:
        tnt.launch(sleep, 2, (sys.argv[1],))
    except KeyboardInterrupt:
        print("interrupted", tnt.get_size())
    """


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_a_ctrl_c_or_the_caller(tmp_path, number):
    script = tmp_path / "caller.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ranks = [tmp_path / f"pid{rank}" for rank in range(2)]
    caller = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_until(lambda: all(file.exists() and file.read_text() for file in ranks), "the ranks", 60)
        caller.send_signal(number)
        out, err = caller.communicate(timeout=60)
    finally:
        caller.kill()
    if number == signal.SIGINT:
        assert (caller.returncode, out) == (0, "interrupted 1\n")
        assert err.splitlines()[1:] == ["tarantella: interrupted; ending 2 ranks"]
    wait_until(lambda: not any(alive(int(file.read_text())) for file in ranks), "the end of the ranks")


def test_how_a_job_ended_goes_from_process_to_process(tmp_path):
    result = JobResult(137, "rank 1 was killed", killed=frozenset({1, 2}), failed=1)
    folder = Folder(tmp_path)
    assert folder.read_job() is None
    folder.write_job(result)
    assert folder.read_job() == result
