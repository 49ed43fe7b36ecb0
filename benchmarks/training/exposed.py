"""How much of a training step the communication of gradients costs: `python benchmarks/training/exposed.py --model deep`.

In every rank, blocks of steps of a `tnt.Model` take turns with blocks of steps of the same model in plain Keras, on the same
micro-batches and with nothing exchanged; the exposed time is the difference of the medians. All that several ranks bring
counts: splitting the batch, reducing gradients and metrics, waiting for the other rank. `--beside PYTHON` measures Horovod in
turn, in processes of its own: an interpreter with TensorFlow 2.15 and Horovod 0.28 (see docs/benchmark.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jobs
import workloads

HERE = Path(__file__).resolve()


def _result(name: str, found: dict[str, float]) -> dict[str, Any]:
    busy = found["reducer_busy_ms"]
    exposed = found["step_ms"] - found["step_ms_without_communication"]
    hidden = 100 * max(0.0, min(1.0, 1 - exposed / busy)) if busy > 0 else 0.0
    return {
        "model": name,
        "ranks": int(found["ranks"]),
        "step_ms": round(found["step_ms"], 3),
        "step_ms_without_communication": round(found["step_ms_without_communication"], 3),
        "exposed_ms": round(exposed, 3),
        "hidden_percent": round(hidden, 1),
        "reducer_busy_ms": round(busy, 3),
    }


def _ours(given: argparse.Namespace) -> dict[str, Any]:
    own = [word for name in ("model", "batch", "rounds", "steps") for word in (f"--{name}", str(getattr(given, name)))]
    where = ["--hostfile", given.hostfile] if given.hostfile else ["-n", str(given.ranks)]
    return _result(given.model, jobs.on_ranks(where, own + (["--jit"] if given.jit else [])))


def _horovod(given: argparse.Namespace) -> dict[str, Any]:
    script = [given.beside, str(HERE.with_name("horovod_exposed.py")), given.model, str(given.rounds), str(given.steps)]
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(given.ranks)]
    threads = [word for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS") for word in ("-x", f"{name}=1")]
    return jobs.run([*mpirun, *threads, "-x", "HOROVOD_CYCLE_TIME=1", *script])


def _median(results: list[dict[str, Any]]) -> dict[str, Any]:
    return sorted(results, key=lambda result: float(result["exposed_ms"]))[len(results) // 2]


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, required=True)
    parser.add_argument("--batch", type=int, default=workloads.GLOBAL_BATCH, help="samples of all ranks in a step; ours only")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--ranks", type=int, default=2)
    where.add_argument("--hostfile", help="of the launcher: ranks on several hosts; ours only")
    parser.add_argument("--rounds", type=int, default=5, help="turns of both kinds of steps")
    parser.add_argument("--steps", type=int, default=30, help="steps in a turn")
    parser.add_argument("--jobs", type=int, default=1, help="the whole so many times; the median exposed time counts")
    parser.add_argument("--jit", action="store_true", help="both kinds of steps with jit_compile=True")
    parser.add_argument("--beside", metavar="PYTHON", help="the interpreter of an environment with Horovod, measured in turn")
    parser.add_argument("--json", action="store_true", help="one line for a program")
    given = parser.parse_args()
    ours, theirs = [], []
    for _ in range(given.jobs):
        ours.append(_ours(given))
        if given.beside:
            theirs.append(_horovod(given))
    result = _median(ours)
    if theirs:
        peer = _median(theirs)
        result["horovod_exposed_ms"] = peer["exposed_ms"]
        result["horovod_step_ms"] = peer["step_ms"]
        result["ratio_to_horovod"] = round(peer["exposed_ms"] / max(result["exposed_ms"], 1e-3), 2)
    if given.json:
        print(json.dumps(result))
        return 0
    for key, value in result.items():
        print(f"{key:>32}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
