"""The programs of this package that the launcher starts: modules with a `main`, each in an interpreter of its own."""

import sys
from pathlib import Path

START = str(Path(__file__).parents[2] / "start" / "__main__.py")
"""It runs them, and nothing from the current folder (see there)."""


def own_program(module: str, *words: str) -> list[str]:
    """The command that runs `tarantella.MODULE` with these words."""
    archive = Path(__file__).parents[3]
    if archive.is_file():  # an installation for C, which has the launcher in one file
        return [sys.executable, "-I", str(archive), f"tarantella.{module}", *words]
    return [sys.executable, START, f"tarantella.{module}", *words]
