"""A pipeline beside data parallelism and plain Keras: `python benchmarks/training/pipeline.py --model bert_small --ranks 2`.

Each kind of training is a job of its own, and the jobs take turns. Reported are the median step of the slowest rank, and by how
much the resident set of the rank that needs most has grown at its peak. *Lost* is the share of the ranks' time that one core
would not need for the same micro-batches. *Waited* is the part of it in which the ranks wait for each other, from the timeline.
The *bubble* of the schedule is what they wait if all passes take the same time and messages none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import jobs
import workloads
from rich.console import Console
from rich.table import Table

from tarantella.scaling.pipeline_timeline import read_pipeline

PLAIN, SERIAL, DATA = "plain", "serial", "data"
SCHEDULES = ("gpipe", "1f1b")
HERE = Path(__file__).resolve()


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The steps of one kind, in this process."""
    if given.kind == SERIAL:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import keras
    import numpy as np
    import tensorflow as tf

    import tarantella as tnt

    tf.zeros([1])  # TensorFlow's own memory
    before = workloads.resident_mib()
    model = workloads.build(keras, given.model)
    if given.kind == SERIAL:
        model = tnt.Model(model, reproducible=given.micro_batches)
    elif given.kind == DATA:
        model = tnt.Model(model)
    elif given.kind in SCHEDULES:
        model = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, micro_batches=given.micro_batches, schedule=given.kind)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(workloads.LEARNING_RATE), loss, jit_compile=False)
    x, y = workloads.samples(getattr(model, "model", model), given.batch * given.steps)
    timer = workloads.step_timer(keras)
    model.fit(x, y, batch_size=given.batch, epochs=2, shuffle=False, verbose=0, callbacks=[timer])
    own = np.array([workloads.median_ms(timer.seconds), workloads.peak_mib() - before])
    worst = np.max(tnt.all_gather(own), axis=0)
    return {"step_ms": float(worst[0]), "mib": float(worst[1])}


def job(kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """One job of a kind."""
    options = ["--kind", kind, "--model", given.model, "--batch", str(given.batch), "--steps", str(given.steps)]
    options += ["--micro-batches", str(given.micro_batches)]
    if kind in (PLAIN, SERIAL):
        return jobs.run([sys.executable, str(HERE), *options])
    launcher = [sys.executable, "-m", "tarantella", "-n", str(given.ranks)]
    if kind == DATA:
        return jobs.run([*launcher, "--", str(HERE), *options])
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) / "trace.json"
        found = jobs.run([*launcher, "--timeline", str(timeline), "--", str(HERE), *options])
        return {**found, "waited": read_pipeline(timeline).bubble}


def compare(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Medians over rounds, for each kind."""
    kinds = (PLAIN, SERIAL, DATA, *SCHEDULES)
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(given.rounds):
        for kind in kinds:
            found[kind].append(job(kind, given))
    medians = {kind: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for kind, runs in found.items()}
    for kind in SCHEDULES:
        medians[kind]["lost"] = 1 - medians[SERIAL]["step_ms"] / given.ranks / medians[kind]["step_ms"]
        medians[kind]["bubble"] = (given.ranks - 1) / (given.micro_batches + given.ranks - 1)
    return medians


def shown(medians: dict[str, dict[str, Any]], given: argparse.Namespace) -> Table:
    """The medians as a table."""
    table = Table(title=f"{given.model}, batch {given.batch}, {given.micro_batches} micro-batches, {given.ranks} ranks")
    for column in ("", "step, ms", "MiB", "lost", "waited", "bubble"):
        table.add_column(column, justify="left" if column == "" else "right")
    names = {PLAIN: "plain Keras, all cores", SERIAL: "micro-batches on one core", DATA: "data parallel"}
    for kind, row in medians.items():
        shares = [f"{row[key]:.0%}" if key in row else "-" for key in ("lost", "waited", "bubble")]
        table.add_row(names.get(kind, f"pipeline, {kind}"), f"{row['step_ms']:.1f}", f"{row['mib']:.0f}", *shares)
    return table


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, default="bert_small")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="steps in each of two epochs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", help="a file for the numbers")
    parser.add_argument("--kind", choices=(PLAIN, SERIAL, DATA, *SCHEDULES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    workloads.check_steps(parser, given.steps)
    if given.kind is not None:
        print(json.dumps(measured(given)), flush=True)
        return
    medians = compare(given)
    if given.json:
        Path(given.json).write_text(json.dumps(medians, indent=2) + "\n", encoding="utf-8")
    Console().print(shown(medians, given))


if __name__ == "__main__":
    main()
