"""Interpreters, environments and the programs that run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "release"


class ReleaseError(Exception):
    """What the user is told instead of a traceback."""


def run(command: Sequence[object], log: Path, env: Mapping[str, str] | None = None, timeout: float = 3600) -> None:
    """Runs a command in the checkout; its output goes to the log, whose end is shown if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        done = subprocess.run(
            list(map(str, command)),
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    if done.returncode != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise ReleaseError(f"{Path(str(command[0])).name} failed with exit code {done.returncode} (all of it: {log})\n{end}")


def said(start: float, text: str) -> None:
    print(f"{text} ({time.monotonic() - start:.0f} s)", flush=True)


class Interpreters:
    """The Pythons of this machine by version: those that are named, and python3.10, python3.11 ... from PATH."""

    def __init__(self, named: Sequence[str]) -> None:
        self._named: dict[str, str] = {}
        for python in named:
            found = shutil.which(python)
            if found is None:
                raise ReleaseError(f"{python} is not a program that can be run: give the path of a Python interpreter")
            self._named[_version_of(found)] = found

    def find(self, version: str) -> str | None:
        """The interpreter of a version such as ``3.12``; None if there is none."""
        found = self._named.get(version) or shutil.which(f"python{version}")
        try:  # a program of this name may be a stub that knows no such version
            return found if found is not None and _version_of(found) == version else None
        except ReleaseError:
            return None


def _version_of(python: str) -> str:
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{python} does not run: {done.stderr.strip()}")
    return done.stdout.strip()


def uv() -> str:
    """The program that makes environments: from PATH, or from PyPI. It links files from its cache, where pip copies them."""
    found = shutil.which("uv")
    if found is not None:
        return found
    tools = FOLDER / "tools"
    program = tools / "bin" / "uv"
    if not program.exists():
        run([sys.executable, "-m", "venv", tools], FOLDER / "log" / "tools.log")
        run([tools / "bin" / "python", "-m", "pip", "install", "uv"], FOLDER / "log" / "tools.log")
    return str(program)


class Environment:
    """A virtual environment in a folder, made anew."""

    def __init__(self, folder: Path, python: str, log: Path) -> None:
        self.folder, self._log = folder, log
        self.python = folder / "bin" / "python"
        shutil.rmtree(folder, ignore_errors=True)
        run([uv(), "venv", "--python", python, folder], log)

    def install(self, *requirements: object) -> None:
        run([uv(), "pip", "install", "--python", self.python, *requirements], self._log)

    def version(self, distribution: str) -> str:
        """Of an installed package; empty if it is not there."""
        code = f"from importlib import metadata; print(metadata.version({distribution!r}))"
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.strip()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
