"""Makes the page of all flags from the --help of each command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMANDS = (
    ("tarantella", "Starts ranks: [Start ranks](../starting.md), [Several nodes](../clusters.md)."),
    ("tarantella doctor", "Checks a machine: [Check a machine](../starting.md#check-a-machine)."),
    ("tarantella status", "Looks into a job: [a look into a running job](../reliability.md#a-look-into-a-running-job)."),
    ("tarantella explain", "Explains from its records why a job failed: [Failures](../reliability.md)."),
    (
        "tarantella verify",
        "Proves that a training is bitwise reproducible: [Bitwise reproducible training](../reproducible.md).",
    ),
    ("tarantella simulate", "Predicts how a training scales: [Scaling](../scaling.md)."),
    ("tnt-bench", "Measures collectives: [Collectives](../benchmark.md)."),
    ("tnt-bench tune", "Measures which algorithm is fastest for which size."),
    ("tnt-bench compare", "Compares two results."),
    ("tnt-bench plot", "Draws results."),
)


def page() -> str:
    """Raises CalledProcessError if a command is not there or has no help."""
    parts = ["# Commands\n\nEvery flag of every command, as `--help` prints it.\n"]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": ""}
    for command, text in COMMANDS:
        program, *words = command.split()
        done = subprocess.run(
            [str(Path(sys.executable).parent / program), *words, "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=True,
        )
        parts.append(f"\n## {command}\n\n{text}\n\n```{{ .text .columns }}\n{done.stdout.strip()}\n```\n")
    return "".join(parts)
