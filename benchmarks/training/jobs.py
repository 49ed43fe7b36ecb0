"""Starts the processes that measure steps, and reads the line of JSON that each prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STEP_TIMES = Path(__file__).resolve().with_name("step_times.py")
JOB_SECONDS = 900
QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"}


def run(command: Sequence[str]) -> dict[str, Any]:
    """Runs one job to its end. Exits if it fails, or prints no step times."""
    job = subprocess.run(
        command, env={**os.environ, **QUIET}, stdout=subprocess.PIPE, text=True, timeout=JOB_SECONDS, check=False
    )
    lines = [line[line.index("{") :] for line in job.stdout.splitlines() if '"step_ms"' in line]
    if job.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed with code {job.returncode}: {job.stdout}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def on_ranks(where: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """Step times on the ranks of a job. where: options of the launcher; options: those of step_times.py."""
    return run([sys.executable, "-m", "tarantella", *where, "--", str(STEP_TIMES), "--ranks", *options])


def alone(options: Sequence[str]) -> dict[str, Any]:
    """Step times of plain Keras in one process."""
    return run([sys.executable, str(STEP_TIMES), *options])
