"""Builds wheels: one for each Python before 3.12, and one with Python's stable ABI for 3.12 and all that follow."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from release.environments import FOLDER, ROOT, Environment, Interpreters, ReleaseError, run, said, uv

STABLE = "3.12"
"""The first Python whose stable ABI has all that nanobind needs."""
REQUIREMENTS = ("scikit-build-core>=0.10", "nanobind>=2.4", "cmake>=3.26", "ninja")


def kind(python: str) -> str:
    """The Python that the wheel for a version such as ``3.13`` is built with."""
    return min(python, STABLE, key=lambda version: int(version.split(".")[1]))


def cmake_folder(python: str, out: Path) -> Path:
    """Where the wheel for a Python was built, which is in the folder out."""
    return FOLDER / f"cmake-{kind(python)}-{out.name}"


def wheel(python: str, interpreters: Interpreters, settings: dict[str, str], out: Path) -> Path:
    """Builds the wheel that fits a Python, and returns its file. settings: CMake's.

    Each has its own folder for CMake, which stays; ccache has what is the same for all.
    """
    built_with, start = kind(python), time.monotonic()
    interpreter = interpreters.find(built_with)
    if interpreter is None:
        raise ReleaseError(f"no Python {built_with} was found, which the wheel for {python} needs: --python PATH names one")
    folder = FOLDER / f"build-{built_with}"
    if not (folder / "bin" / "python").exists():
        Environment(folder, interpreter, FOLDER / "log" / f"build-{built_with}.log").install(*REQUIREMENTS)
    cmake = cmake_folder(python, out)
    options = [f"build-dir={cmake}", *(f"cmake.define.{name}={value}" for name, value in settings.items())]
    if built_with == STABLE:
        options.append(f"wheel.py-api=cp{STABLE.replace('.', '')}")
    env = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    here = FOLDER / "new" / out.name / built_with
    shutil.rmtree(here, ignore_errors=True)
    command = [uv(), "build", "-v", "--wheel", "--no-build-isolation", "--python", folder / "bin" / "python", "-o", here]
    words = [word for option in options for word in ("-C", option)]
    run([*command, *words, ROOT], FOLDER / "log" / f"{out.name}-{built_with}.log", env)
    (made,) = here.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    said(start, f"wheel for Python {built_with}: {made.name}")
    return made.replace(out / made.name)
