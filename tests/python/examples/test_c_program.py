"""The programs of docs/c-api.md: built in the ways and started in the ways that the page names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.c_programs import ROOT, install_release, wheel_prefix
from support.launch import SLACK
from support.mpirun import MPI_ENVIRONMENT, why_no

PAGE = (ROOT / "docs" / "c-api.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def shell(script: str, folder: Path, prefix: Path) -> str:
    """What the lines print, as a user would enter them."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    script = "set -e\n" + re.sub("(?<!_)PREFIX|PACKAGE", str(prefix), script)
    words = ["bash", "-c", script]
    environment = {**inherited, **MPI_ENVIRONMENT, "TNT_TIMEOUT": "60"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60 * SLACK)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_release(tmp_path_factory.mktemp("prefix") / "here")


BUILDS = ["cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build && cp build/trainer .", *blocks("sh")[:2]]
OF_PIP = blocks("sh")[2]
STARTS = blocks("sh")[3:]
FIRST, TRAINER = blocks("c")[:2]


@pytest.fixture(scope="module", params=range(3), ids=["cmake", "pkg-config", "by hand"])
def built(request: pytest.FixtureRequest, prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "trainer.c").write_text(TRAINER)
    (folder / "CMakeLists.txt").write_text(blocks("cmake")[0])
    shell(BUILDS[request.param], folder, prefix)
    return folder


@pytest.mark.parametrize(("way", "ranks"), [(0, 1), (1, 3), (2, 3), (3, 3)], ids=["alone", "tnt-run", "mpirun", "variables"])
def test_it_runs(built: Path, prefix: Path, way: int, ranks: int) -> None:
    """Each program by each starter: the mean of the ranks' gradients is that of the page."""
    start = STARTS[way]
    if "mpirun" in start and why_no("mpirun"):
        pytest.skip(why_no("mpirun"))
    assert shell(start, built, prefix).removeprefix("[rank 0] ") == ("0.000 -1.000\n" if ranks == 1 else "-1.000 -1.000\n")


def test_of_pip(tmp_path: Path) -> None:
    """The first program by the Python package alone: its files, and its `tnt-run`."""
    (tmp_path / "trainer.c").write_text(FIRST)
    bin_folder = Path(sys.executable).parent
    printed = shell(f"{OF_PIP}\n{bin_folder}/tnt-run -n 3 -- ./trainer", tmp_path, wheel_prefix())
    assert sorted(printed.splitlines()) == blocks("text")[0].splitlines()


def test_the_programs_are_short() -> None:
    assert len(BUILDS) == 3 and len(STARTS) == 4
    assert len(FIRST.splitlines()) == 12
    assert len([line for line in TRAINER.splitlines() if line]) <= 40
