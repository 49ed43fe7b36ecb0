"""A system that refuses calls of the launcher, as an old kernel or a strict container does: one sentence, nothing left."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REFUSES = """
import errno, os, sys
name = sys.argv.pop(1)
def refuse(*_, **__): raise OSError(errno.EPERM, f"Operation not permitted: {name}")
setattr(os, name, refuse)
from tarantella.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["pidfd_open", "waitid", "setsid", "readlink"])
def test_what_is_refused_is_said(here, name):
    words = [sys.executable, "-c", REFUSES, name, "-n", "2", "--", here.script("mark('ran')")]
    result = subprocess.run(words, cwd=here.folder, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1] == (
        f"tarantella: the system has refused what the launcher needs ([Errno 1] Operation not permitted: {name}): Linux 5.3 or "
        "newer, with /proc mounted, and pidfd_open, setsid and waitid allowed, also in a container"
    )
    assert "Traceback" not in result.stderr and not (here.folder / "ran").exists()


@pytest.mark.parametrize("name", ["sched_getaffinity", "sched_setaffinity"])
def test_ranks_run_on_all_cores_where_none_can_be_bound(here, name):
    words = [sys.executable, "-c", REFUSES, name, "-n", "2", "--", here.script("print('ran')")]
    result = subprocess.run(words, cwd=here.folder, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout.splitlines()[:1]) == (0, ["ran"]), result.stderr
    assert f" on {os.cpu_count()} core" in result.stderr
