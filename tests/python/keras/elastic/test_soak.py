"""A round of the soak test: ranks are killed at random moments, and the bits are those of the undisturbed training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).resolve().parents[3] / "soak/elastic.py"


def test_ranks_that_are_killed_at_random_moments_change_no_bit():
    command = [sys.executable, str(SOAK), "--seconds", "0", "--epochs", "6", "--ways", "killed,terminated"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 rounds, 0 wrong" in done.stdout and "nothing" not in done.stdout, done.stdout
