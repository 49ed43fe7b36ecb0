"""Tries packages on top of Keras: `tools/clients`.

A client is a script of tests/clients and the packages that it needs. Each has an environment on top of the checkout's, where
only its packages are installed. The script runs in plain Keras and on 2 and 3 ranks, and all must report the same numbers. The
outcome of each is kept in build/release/clients.json, from which the table in docs/clients.md is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.environments import FOLDER, ROOT, ReleaseError, run, said

BASE = ROOT / ".venv"
SCRIPTS = ROOT / "tests" / "clients"
RESULTS = FOLDER / "clients.json"
PAGE = ROOT / "docs" / "clients.md"
RANKS = (2, 3)
SECONDS = 600
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Client:
    """A script with the packages that it needs, the first of which is tried."""

    script: str
    packages: tuple[str, ...]
    does: str
    legacy: bool = False

    @property
    def package(self) -> str:
        return self.packages[0].partition("<")[0]


CLIENTS = [
    Client("keras_hub_text", ("keras-hub",), "a text classifier, saved and loaded"),
    Client("keras_hub_image", ("keras-hub",), "an image classifier with its preprocessor"),
    Client("keras_hub_lora", ("keras-hub",), "a causal language model, then LoRA"),
    Client("keras_rs_ranking", ("keras-rs",), "a recommender with crossed features"),
    Client("keras_tuner_search", ("keras-tuner",), "random and Bayesian search by `tnt.tuner`"),
    Client("optuna_study", ("optuna",), "a study that the master asks and tells"),
    Client("scikeras_search", ("scikeras", "scikit-learn"), "a pipeline and `GridSearchCV`"),
    Client("bayesflow_approximator", ("bayesflow",), "an approximator with its own `fit`"),
    Client("probability_layers", ("tensorflow-probability",), "a distribution as output", legacy=True),
    Client("mlflow_autolog", ("mlflow",), "autolog, a run and a logged model, as on one device"),
    Client("wandb_offline", ("wandb",), "a run, as on one device"),
    Client("spektral_disjoint", ("spektral",), "mini-batches of graphs, by `tnt_batch_size`", legacy=True),
    Client("litert_export", ("ai-edge-litert",), "an exported file, written once"),
    Client("tensorboard_logs", ("tensorboard",), "Keras' `TensorBoard` callback"),
    Client("gpflow_sparse", ("gpflow",), "a sparse Gaussian process, by our tape"),
    Client("deepxde_equation", ("deepxde", "tensorflow-probability"), "an equation; the optimizer sums up gradients"),
    Client("csbdeep_restoration", ("csbdeep",), "a network whose training the package owns"),
    Client("tcn_sequences", ("keras-tcn",), "dilated convolutions over sequences"),
    Client("kecam_image", ("keras-cv-attention-models",), "Swin V2 and ConvNeXt", legacy=True),
    Client("transformers_text", ("transformers<5",), "a classifier and a causal language model", legacy=True),
    Client("larq_binarized", ("larq",), "binary weights, two optimizers", legacy=True),
    Client("kapre_audio", ("kapre",), "a spectrogram as a layer"),
    Client("onnx_export", ("tf2onnx", "onnxruntime"), "ONNX files by Keras' export and by tf2onnx"),
    Client("tfrs_ranking", ("tensorflow-recommenders",), "a ranking task; retrieval is refused", legacy=True),
    Client("tfmot_pruning", ("tensorflow-model-optimization",), "pruning by its callback", legacy=True),
]


def main() -> int:
    parser = argparse.ArgumentParser("tools/clients", description="Tries packages on top of Keras.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["*"], help="clients, such as 'keras_hub*'")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--list", action="store_true", help="print the clients and end")
    arguments = parser.parse_args()
    clients = [client for client in CLIENTS if any(fnmatch.fnmatch(client.script, only) for only in arguments.only)]
    if not clients:
        print(f"tools/clients: no client is called {' or '.join(arguments.only)}: --list shows all", file=sys.stderr)
        return 2
    if arguments.list:
        print(*(client.script for client in clients), sep="\n")
        return 0
    if not (BASE / "bin" / "python").exists():
        print("tools/clients: there is no environment of the checkout yet: run tools/setup test first", file=sys.stderr)
        return 1
    return try_clients(clients, arguments.keep)


def try_clients(clients: list[Client], keep: bool) -> int:
    """Tries them one after the other, and writes the table after each. Returns the exit code."""
    results: dict[str, Any] = {}
    for client in clients:
        start = time.monotonic()
        found = try_client(client, keep)
        results = {**(json.loads(RESULTS.read_text()) if RESULTS.exists() else {}), client.script: found}
        said(start, f"{client.script}: {found['said']}")
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1))
        PAGE.write_text(with_table(PAGE.read_text(), results))
    wrong = [client.script for client in clients if not results[client.script]["passed"]]
    print(f"{len(clients) - len(wrong)} of {len(clients)} clients passed" + f"; others: {', '.join(wrong)}" * bool(wrong))
    return 1 if wrong else 0


def try_client(client: Client, keep: bool = False) -> dict[str, Any]:
    """Makes the environment, runs the script, and returns what came of it."""
    folder, logs = FOLDER / "clients" / client.script, FOLDER / "log" / "clients"
    version, python = "", folder / "bin" / "python"
    try:
        install(client, folder, logs / f"{client.script}-install.log")
        asked = f"import importlib.metadata as m; print(m.version({client.package!r}))"
        version = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
        env = {"TF_USE_LEGACY_KERAS": "1" if client.legacy else "0", "TF_CPP_MIN_LOG_LEVEL": "2"}
        plain = numbers(client, [python], {**env, "CLIENT_PLAIN": "1"}, logs, "plain")[0]
        difference = 0.0
        for ranks in RANKS:
            launched = [python, "-m", "tarantella", "-n", ranks, "--"]
            for found in numbers(client, launched, env, logs, f"{ranks}-ranks", ranks):
                difference = max(difference, difference_of(plain, found))
        passed = difference <= TOLERANCE
        text = f"equal, to {difference:.0e}" if difference else "equal"
    except (ReleaseError, subprocess.SubprocessError) as error:
        passed, text = False, str(error).strip().splitlines()[-1]
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return {"version": version, "passed": passed, "said": text}


def install(client: Client, folder: Path, log: Path) -> None:
    """Makes an environment in which the checkout's own is seen, and installs the client's packages there."""
    if not (folder / "installed").exists():
        run([BASE / "bin" / "python", "-m", "venv", folder], log)
        (site,) = folder.glob("lib/python3*/site-packages")
        (base,) = BASE.glob("lib/python3*/site-packages")
        (site / "checkout.pth").write_text(f"{base}\n")
        run([folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *client.packages], log)
        (folder / "installed").touch()


def numbers(
    client: Client, command: list[object], env: dict[str, str], logs: Path, how: str, ranks: int = 1
) -> list[list[float]]:
    """The numbers that the script reports, in each rank."""
    with tempfile.TemporaryDirectory() as out:
        here = {**env, "CLIENT_OUT": out, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")])}
        run([*command, SCRIPTS / f"{client.script}.py"], logs / f"{client.script}-{how}.log", here, SECONDS)
        return [json.loads(Path(out, f"{rank}.json").read_text()) for rank in range(ranks)]


def difference_of(plain: list[float], found: list[float]) -> float:
    """The largest difference, relative to numbers beyond 1; infinite if they are not as many or not finite."""
    if len(plain) != len(found) or not all(map(math.isfinite, [*plain, *found])):
        return math.inf
    return max((abs(a - b) / max(1.0, abs(a)) for a, b in zip(plain, found, strict=True)), default=0.0)


def with_table(text: str, results: dict[str, Any]) -> str:
    """The page with a row for each client that was tried; those that were not tried now keep theirs."""
    begin, end = "<!-- table -->\n\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    kept = {row.split(" | ")[2].strip("`"): row for row in rest.partition(end)[0].splitlines() if row.count(" | ") == 4}
    rows = ["| package | version | script | what it does | 2 and 3 ranks |", "| --- | --- | --- | --- | --- |"]
    for client in CLIENTS:
        if client.script in results:
            found = results[client.script]
            outcome = found["said"] if found["passed"] else f"**no**: {found['said'][:80]}"
            script = f"`{client.script}`"
            rows.append(f"| {client.package} | {found['version'] or '-'} | {script} | {client.does} | {outcome} |")
        elif client.script in kept:
            rows.append(kept[client.script])
    return before + begin + "\n".join(rows) + "\n\n" + end + rest.partition(end)[2]


if __name__ == "__main__":
    sys.exit(main())
