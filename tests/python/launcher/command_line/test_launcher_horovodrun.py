"""Command lines of Horovod's launcher, and a script that `tarantella horovodrun` starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line import horovodrun

LINES = {
    "-np 4 python train.py --epochs 3": "--horovod -n 4 -- python train.py --epochs 3",
    "-np 8 -H a:4,b:4 -- train.py": "--horovod -n 8 --hosts a:4,b:4 -- train.py",
    "--num-proc 2 --hostfile hosts -x A=1 --env B train.py": "--horovod -n 2 --hostfile hosts -x A=1 -x B -- train.py",
    "-np 2 --timeline-filename t.json --fusion-threshold-mb 32 --log-level trace train.py": (
        "--horovod -n 2 --timeline t.json --fusion-threshold 32M --log-level DEBUG -- train.py"
    ),
    "-np 4 --min-np 2 train.py": "--horovod -n 4 --min-ranks 2 --max-restarts 3 -- train.py",
    "-np 4 --min-np 2 --reset-limit 5 train.py": "--horovod -n 4 --min-ranks 2 --max-restarts 5 -- train.py",
}


@pytest.mark.parametrize("words", LINES)
def test_a_line_becomes_ours(words):
    line, ignored = horovodrun.launcher_line(words.split())
    assert " ".join(line) == LINES[words]
    assert ignored == []


def test_flags_without_meaning_are_named():
    line, ignored = horovodrun.launcher_line(
        ["-np", "2", "--cycle-time-ms", "5", "--gloo", "--max-np", "4", "--verbose", "train.py"]
    )
    assert line == ["--horovod", "-n", "2", "--", "train.py"]
    assert ignored == ["--cycle-time-ms", "--gloo", "--max-np", "--verbose"]


@pytest.mark.parametrize("words", ["-np 2", "-np 2 --no-such-flag train.py"])
def test_refused(words):
    with pytest.raises(UsageError):
        horovodrun.launcher_line(words.split())


SCRIPT = """
import os
import horovod.common.basics as hvd
hvd.init()
import tarantella.horovod.common.basics as ours
assert hvd is ours
if hvd.rank() == 0:
    print(hvd.size(), os.environ["TNT_FUSION_THRESHOLD"], os.environ["TNT_LOG_LEVEL"], flush=True)
"""


def test_a_script_runs_as_a_program_of_its_own(tmp_path):
    """Its interpreter knows the name by itself. Variables of Horovod's are honoured, and those without meaning named."""
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = ["HOROVOD_FUSION_THRESHOLD=65536", "HOROVOD_LOG_LEVEL=info", "HOROVOD_CYCLE_TIME=1"]
    options = [word for variable in variables for word in ("--env", variable)]
    command = [sys.executable, "-m", "tarantella", "horovodrun", "-np", "2", "--gloo", *options, "python", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "64", "INFO"]
    assert "ignored, they have no meaning here: --gloo" in done.stderr
    assert "docs/horovod.md): HOROVOD_CYCLE_TIME" in done.stderr and "ignored, they have no meaning here (" in done.stderr


def test_other_frameworks_are_refused(tmp_path):
    command = [sys.executable, "-m", "tarantella", "-n", "1", "--horovod", "--", "-c", "import horovod.torch"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "horovod.torch: Tarantella takes Horovod's place for TensorFlow and Keras only" in done.stderr


def test_an_installed_horovod_is_refused(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    command = [sys.executable, "-m", "tarantella", "-n", "1", "--horovod", "--", "-c", "import horovod"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "but Horovod is installed" in done.stderr


def test_ranks_have_the_variables_of_other_launchers(here):
    """Packages look for them to know that they run on Horovod; without --horovod nothing sets them."""
    names = [f"{launcher}_{name}" for launcher in ("OMPI_COMM_WORLD", "HOROVOD") for name in ("RANK", "SIZE", "LOCAL_RANK")]
    line = f"print([os.environ.get(name) for name in {names}])"
    found = here.ranks(2, line, "--horovod", "--output-on-all-devices").stdout.splitlines()
    assert sorted(found) == [f"[rank {rank}] {[str(rank), '2', str(rank)] * 2}" for rank in range(2)]
    assert here.ranks(1, line).stdout.strip() == str([None] * 6)
