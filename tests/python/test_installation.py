"""A broken installation is one sentence that says what is missing, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tarantella
from support.launch import run_alone
from tarantella import installation

PACKAGE = Path(tarantella.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The installed package, to be broken."""
    ignored = shutil.ignore_patterns("bin", "include", "__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "tarantella", ignore=ignored))


def last_line_of_import(copy: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(copy.parent)}
    command = [sys.executable, "-c", "import tarantella; print('imported')"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).splitlines()[-1]


def sentence(copy: Path, reason: str) -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    does_not = f"the installation of Tarantella in {copy} does not work on Python {python}"
    return f"ImportError: {does_not}: {reason}: {installation.REMEDY}"


def test_a_whole_one(copy):
    assert last_line_of_import(copy) == "imported"


def test_messages_name_pages_that_are_installed():
    page = Path(installation.page("custom-loops.md"))
    assert page.parent == PACKAGE / "docs" and "DistributedGradientTape" in page.read_text()
    assert installation.page("none.md") == "docs/none.md"


def test_without_the_library(copy):
    (library,) = copy.glob("libtarantella.so.*")
    library.unlink()
    reason = f"{library.name}: cannot open shared object file: No such file or directory"
    assert last_line_of_import(copy) == sentence(copy, reason)


def test_without_the_extension(copy):
    (extension,) = copy.glob("_native*.so")
    extension.unlink()
    assert last_line_of_import(copy) == sentence(copy, "it has no extension module (_native)")


def test_of_another_python(copy):
    (extension,) = copy.glob("_native*.so")
    extension.rename(copy / "_native.cpython-27-x86_64-linux-gnu.so")
    reason = "it was built for another Python (_native.cpython-27-x86_64-linux-gnu.so)"
    assert last_line_of_import(copy) == sentence(copy, reason)


def test_without_the_operations_for_tensorflow():
    source = """
        from pathlib import Path
        from tarantella.keras.reduction import ops
        ops.library.cache_clear()
        ops._path = lambda: Path("/nowhere/libtarantella_tensorflow.so")
        try:
            ops.library()
        except NotImplementedError as error:
            print(type(error).__name__, error)
    """
    said = run_alone(source).good().stdout.strip()
    assert re.fullmatch(
        r"UnsupportedError the operations for TensorFlow cannot be loaded: /nowhere/libtarantella_tensorflow\.so: .*: "
        + re.escape(installation.REMEDY),
        said,
    )
