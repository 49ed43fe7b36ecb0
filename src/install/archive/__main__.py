"""The launcher of an installation for C: `tarantella`, and `tnt-run` under that name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tarantella import cli

OF_THE_PACKAGE = ("doctor", "verify", "simulate", "horovodrun")
"""Commands for programs in Python, which need the Python package."""


def main(words: list[str]) -> int:
    if words and words[0].startswith("tarantella."):  # a program of the launcher's own (launcher/start/own_program.py)
        return int(importlib.import_module(words[0]).main(words[1:]) or 0)
    if Path(sys.argv[0]).name == "tnt-run":
        return cli.main(["tnt-run", *words])
    if words[:1] and words[0] in OF_THE_PACKAGE:
        print(f"tarantella: {words[0]!r} needs Tarantella's Python package, which this installation has not", file=sys.stderr)
        return cli.USAGE_ERROR
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
