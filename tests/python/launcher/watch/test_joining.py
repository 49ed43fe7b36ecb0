"""The launcher warns if no rank has joined, and hints if another process has joined as a rank."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import socket
from pathlib import Path

import pytest

import tarantella
from tarantella.environment import join_address
from tarantella.launcher.base import mark
from tarantella.launcher.watch import joining
from tarantella.launcher.watch.joining import JoinWatch

LONE = "print(sum(range(10)))\n"
JOINS = "import tarantella as tnt\ntnt.barrier()\n"
IMPORTS = "import tarantella as tnt\nprint(tnt.__version__)\n"


def warnings(result) -> list[str]:
    return [line for line in result.stderr.splitlines() if "no rank has joined" in line]


def program(here, text: str, name: str = "program.py"):
    (here.folder / name).write_text(text)
    return name


@pytest.mark.parametrize("text", [LONE, IMPORTS], ids=["plain", "imports"])
def test_a_script_that_never_joins_is_warned_of_once(here, text):
    result = here.run("-n", 3, "--", program(here, text))
    assert result.returncode == 0
    (line,) = warnings(result)
    assert "the program ran 3 times, each rank alone, and nothing was synchronised" in line
    assert "tnt.Model(model)" in line


TRAINS = """
import tensorflow as tf
weight = tf.Variable(1.0)
with tf.GradientTape() as tape:
    loss = weight * weight
tape.gradient(loss, weight)
"""
FITS = """
import keras, numpy as np
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)
"""


@pytest.mark.parametrize("text", [TRAINS, FITS], ids=["loop", "fit"])
def test_a_training_that_never_joins_fails(here, text):
    result = here.run("-n", 2, "--max-restarts", 1, "--", program(here, text))
    assert result.returncode == 1, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "has trained" in line or "restart" in line]
    assert line.startswith("tarantella: wrap the model with tnt.Model(model): each of the 2 ranks has trained its own model")


def test_a_training_that_joins_or_is_alone_does_not_fail(here):
    joins = TRAINS + "import tarantella as tnt\ntnt.barrier()\n"
    for ranks, text in ((2, joins), (1, TRAINS)):
        result = here.run("-n", ranks, "--", program(here, text))
        assert result.returncode == 0 and "tnt.Model" not in result.stderr, result.stderr


def test_no_warning_where_all_is_well(here):
    assert warnings(here.run("-n", 2, "--", program(here, JOINS))) == []
    assert warnings(here.run("-n", 1, "--", program(here, LONE))) == []


def test_a_rank_may_join_through_the_c_api(here):
    """By ctypes, as examples/torch_trainer does."""
    (library,) = Path(tarantella.__file__).parent.glob("libtarantella.so.*")
    text = f"import ctypes\nlibrary = ctypes.CDLL({str(library)!r})\n"
    text += "assert library.tnt_init(None) == 0 and library.tnt_finalize() == 0\n"
    result = here.run("-n", 2, "--", program(here, text))
    assert result.returncode == 0, result.stderr
    assert warnings(result) == []


def test_no_warning_beside_another_error(here):
    result = here.run("-n", 2, "--", program(here, LONE + "raise SystemExit(3)\n"))
    assert result.returncode == 3
    assert warnings(result) == []


def test_a_rank_that_another_program_starts_joins_too(tmp_path, here):
    """Its standard descriptors and environment are all that it has of the launcher's."""
    program(here, JOINS)
    text = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'program.py']).returncode)\n"
    result = here.run("-n", 2, "--", program(here, text, "starts.py"))
    assert result.returncode == 0, result.stderr
    assert warnings(result) == []


HINT = (
    r"^tarantella: process (\d+) had joined as rank (\d), and was started by the script \(process (\d+)\)\. If the script "
    "itself is to be that rank, it must join first"
)
EARLY = """
import os, subprocess, sys
rank = int(os.environ["TNT_RANK"])
if rank == {rank}:
    subprocess.run([sys.executable, "-c", "import tarantella as tnt, numpy; {child}"], check=True)
import numpy
import tarantella as tnt
tnt.all_reduce(numpy.ones(3))
"""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("child", ["tnt.get_rank()", "tnt.all_reduce(numpy.ones(3))"])
def test_a_program_that_joins_before_its_rank_is_said(here, rank, child):
    result = here.run("-n", 2, "--", program(here, EARLY.format(rank=rank, child=child)), env={"TNT_TIMEOUT": "10"})
    assert result.returncode == 1
    (hint,) = re.findall(HINT, result.stderr, re.MULTILINE)
    assert int(hint[1]) == rank
    assert hint[0] != hint[2]


def test_a_rank_that_fails_by_itself_gets_no_hint(here):
    result = here.run("-n", 2, "--", program(here, JOINS + "raise SystemExit(3)\n"))
    assert result.returncode == 3
    assert "had joined as rank" not in result.stderr


def test_programs_that_are_not_pythons_are_not_judged(here):
    if "--preload" not in here._options:
        result = here.run("-n", 2, "--", "hostname")
        assert (result.returncode, result.stdout) == (0, f"{socket.gethostname()}\n")
        assert warnings(result) == []


def test_mpirun(here):
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None or "--preload" in here._options:
        pytest.skip("needs Open MPI, and ranks that are no forks")
    words = ["-n", 2, "--hosts", "localhost:2", "--mpirun", f"{mpirun} --oversubscribe", "--"]
    (line,) = warnings(here.run(*words, program(here, LONE)))
    assert "the program ran 2 times" in line


# --------------------------------------------------------------------------------------------- the watch by itself


@pytest.fixture
def selector():
    with selectors.PollSelector() as one:
        yield one


def test_long_computing_is_warned_of_before_the_end(selector, monkeypatch):
    monkeypatch.setattr(joining, "INTERVAL", 0.0)
    monkeypatch.setattr(joining, "CPU_SECONDS", 1e6)
    watch = JoinWatch(2, selector)
    assert watch.early_warning([os.getpid()]) is None  # this process has not computed for so long
    monkeypatch.setattr(joining, "CPU_SECONDS", 0.01)
    said = watch.early_warning([os.getpid()])
    assert said is not None and "each of the 2 ranks does all the work alone" in said
    assert watch.early_warning([os.getpid()]) is None  # once
    assert watch.last_warning() is None
    watch.close()


def test_a_notice_that_was_not_read_yet_counts(selector):
    watch = JoinWatch(2, selector)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as rank:
        rank.sendto(joining.TRAINS, join_address(mark.own_mark()))
        assert "tnt.Model(model)" in str(watch.last_warning()) and watch.trained_alone()
        rank.sendto(b"nonsense", join_address(mark.own_mark()))
        rank.sendto(b"1", join_address(mark.own_mark()))
    assert watch.last_warning() is None and not watch.trained_alone()
    assert watch.hint({0: 1, 1: os.getpid()}) is None
    assert f"process {os.getpid()} had joined as rank 1, and was started by the script (process 1)" in str(watch.hint({1: 1}))
    watch.close()
    assert not selector.get_map()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_a_notice_of_another_user_does_not_count(selector):
    watch, address = JoinWatch(2, selector), join_address(mark.own_mark())
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as rank:
            rank.sendto(b"1", address)
        os._exit(0)
    os.waitpid(pid, 0)
    assert "no rank has joined" in str(watch.last_warning())
    assert watch.hint({1: 1}) is None
    watch.close()


def test_cpu_seconds_of_a_process_and_of_one_that_is_gone():
    used = sum(os.times()[:4])
    assert 0 < joining.cpu_seconds(os.getpid()) <= used + 0.1
    assert joining.cpu_seconds(2**22 + 1) == 0
