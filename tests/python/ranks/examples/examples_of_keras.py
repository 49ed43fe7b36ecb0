"""Trains the named examples of `tests/examples_of_keras`, with tnt.Model or (--serial) with plain Keras: `training.run_all`.

examples_of_keras.py FOLDER [--serial] NAME...

With --serial, NAME.one_rank trains the example by tnt.Model, on the one rank that there is.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tarantella as tnt
from checks import raised
from training import Case, Job, Outcome, run_all

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples_of_keras"))


def case_of(name: str, *how: str) -> Case:
    def case(job: Job) -> Outcome:
        job = replace(job, serial=job.serial and not how)
        example = importlib.import_module(name)

        def wrap(model: Any, **arguments: Any) -> Any:
            return model if job.serial else tnt.Model(model, **arguments)

        model, results = example.train(wrap)
        outcome = Outcome()
        outcome.add("results", results)
        of_metrics = {id(variable) for metric in model.metrics for variable in metric.variables}  # weights of legacy Keras
        outcome.add("weights", [np.asarray(weight) for weight in model.weights if id(weight) not in of_metrics])
        if job.size > 1 and hasattr(example, "as_written"):
            outcome.add("refused", raised(example.as_written, wrap))
        return outcome

    return case


def main(folder: str, *words: str) -> None:
    names = [word for word in words if word != "--serial"]
    run_all({name: case_of(*name.split(".")) for name in names}, Job.of("--serial" in words), Path(folder))


main(*sys.argv[1:])
