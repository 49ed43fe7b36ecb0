"""mlflow in a job, of which a small double stands here: rank 0 alone reaches the user's store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.launch import LAUNCHER

PACKAGE = """
import os, tempfile
uri = os.environ.get("MLFLOW_TRACKING_URI")

def set_tracking_uri(given):
    global uri
    uri = given

set_registry_uri = set_tracking_uri

def autolog(log_datasets=True, disable=False):
    import mlflow.tensorflow
    return mlflow.tensorflow.autolog(log_datasets=log_datasets, disable=disable)
"""
FLAVOR = """
def autolog(log_models=True, log_datasets=True, disable=False):
    return {"log_models": log_models, "log_datasets": log_datasets, "disable": disable}
"""
SCRIPT = """
import os, sys
{imports}
import mlflow.tensorflow
mlflow.set_tracking_uri("sqlite:///of_user.db")
folder = (mlflow.uri or "").removeprefix("file://")
found = [mlflow.uri, mlflow.autolog(), mlflow.tensorflow.autolog(False), "MLFLOW_RUN_ID" in os.environ, os.path.isdir(folder)]
import json
print(json.dumps([tnt.get_rank(), *found]))
"""
FIRST, LAST = "import tarantella as tnt\nimport mlflow", "import mlflow\nimport tarantella as tnt"


def ranks_of(folder: Path, imports: str, **env: str) -> list[list]:
    package = folder / "mlflow"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "tensorflow.py").write_text(FLAVOR)
    (folder / "script.py").write_text(SCRIPT.format(imports=imports))
    given = [option for name, value in {"PYTHONPATH": str(folder), "MLFLOW_RUN_ID": "7", **env}.items()
             for option in ("-x", f"{name}={value}")]  # fmt: skip
    command = [*LAUNCHER, "-n", "2", "--output-on-all-devices", *given, "--", folder / "script.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return sorted(json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines())


@pytest.mark.parametrize("imports", [FIRST, LAST], ids=["tarantella first", "mlflow first"])
def test_rank_0_alone_reaches_the_users_store(tmp_path, imports):
    master, other = ranks_of(tmp_path, imports)
    on = {"log_models": True, "log_datasets": False, "disable": False}
    assert master == [0, "sqlite:///of_user.db", on, {**on, "log_models": False}, True, False]
    _, uri, of_package, of_flavor, has_run, has_folder = other
    assert uri.startswith("file:///")
    assert of_package["disable"]
    assert of_flavor["disable"]
    assert not has_run
    assert has_folder
    assert not Path(uri.removeprefix("file://")).exists()  # it went with its rank


def test_all_ranks_may(tmp_path):
    for _, uri, autolog, _, has_run, _ in ranks_of(tmp_path, FIRST, TNT_ON_ALL_RANKS="mlflow"):
        assert (uri, autolog["disable"], autolog["log_datasets"], has_run) == ("sqlite:///of_user.db", False, True, True)
