"""Ranks of an elastic job are lost, and others join, again and again: what stays must hold no more in the end.

    python tests/soak/leaks.py --kills 50

Two ranks of a tiny model; each time one is lost and another one has joined, rank 0 notes its descriptors, threads, mappings and
memory, and those of the launcher. Prints them. Exit code 1 if there are more after the last times than after the second one.
Memory may grow by what TensorFlow takes to trace a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/python/ranks/keras/elastic_leaks.py"
SECONDS = 60
"""For each time, at most."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    given = parser.parse_args()
    sys.path.insert(0, str(SCRIPT.parents[2]))
    from support.leaks import grown

    words = ["-n", 2, "--elastic", "--replacements", given.kills, "--preload", "tensorflow", "--", SCRIPT]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tarantella", *map(str, words), folder, str(given.kills)]
        env = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
        code = subprocess.run(command, env=env, timeout=SECONDS * (given.kills + 1), check=False).returncode
        if code != 0:
            print(f"exit code {code}")
            return 1
        found = json.loads(Path(folder, "held.json").read_text())
    for each in found:
        print(*(f"{process}: {held}" for process, held in each.items()), sep="; ")
    leaks = grown(found)
    print(*leaks or ["nothing leaks"], sep="\n")
    return int(bool(leaks))


if __name__ == "__main__":
    sys.exit(main())
