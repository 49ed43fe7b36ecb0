"""Trains the named cases, with tnt.Model or (--serial) with plain Keras, and writes what came of each.

equivalence.py FOLDER [--serial] NAME...
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import recipes
import special
import special_data  # noqa: F401
import special_fit  # noqa: F401
import special_losses  # noqa: F401
import special_models  # noqa: F401
import special_optimizers  # noqa: F401
from training import Job, run_all


def main(folder: str, *words: str) -> None:
    names = [word for word in words if word != "--serial"]
    cases = {name: special.CASES.get(name) or partial(recipes.grid_case, name) for name in names}
    run_all(cases, Job.of("--serial" in words), Path(folder))


main(*sys.argv[1:])
