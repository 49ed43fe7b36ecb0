"""The programs of this package that the launcher starts: modules with a `main`, each in an interpreter of its own."""

from __future__ import annotations

import sys
from pathlib import Path

START = str(Path(__file__).parents[1] / "start" / "__main__.py")
"""It runs them, and nothing from the current folder (see there)."""


def own_program(module: str, *words: str) -> list[str]:
    """The command that runs `tarantella.MODULE` with these words."""
    return [sys.executable, START, f"tarantella.{module}", *words]
