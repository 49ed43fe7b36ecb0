"""Copies the headers and libraries that the build needs into a folder that goes along to a machine without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from gpu_check.run import ROOT, Failed

BUNDLE = ROOT / "build" / "gpu-bundle"
LARGEST = 60 << 20  # bytes
KEPT = ("/usr/include/", "/usr/lib/", "/usr/share/cmake/")
HEADERS = {
    "fmt/format.h": "libfmt-dev",
    "nlohmann/json.hpp": "nlohmann-json3-dev",
    "CLI/CLI.hpp": "libcli11-dev",
    "gtest/gtest.h": "libgtest-dev",
    "gmock/gmock.h": "libgmock-dev",
}
LIBRARIES = ("libfmt9",)  # the shared library of libfmt-dev


def prefixes() -> list[str]:
    """The folders with an include and a lib folder where the build searches: those of CMAKE_PREFIX_PATH, and the bundle."""
    named = [str(Path(prefix).absolute()) for prefix in os.environ.get("CMAKE_PREFIX_PATH", "").split(":") if prefix]
    return [*named, str(BUNDLE / "usr")] if (BUNDLE / "usr").is_dir() else named


def files_of(package: str) -> list[Path]:
    done = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"a bundle is made of Debian packages, and {package} is not installed here: apt-get install {package}")
    return [Path(name) for name in done.stdout.splitlines() if name.startswith(KEPT) and Path(name).is_file()]


def make_bundle(folder: Path = BUNDLE) -> int:
    """Makes the folder anew; returns its size in bytes."""
    if shutil.which("dpkg") is None:
        raise Failed("a bundle is made of installed Debian packages, and there is no dpkg here")
    files = [file for package in (*HEADERS.values(), *LIBRARIES) for file in files_of(package)]
    shutil.rmtree(folder, ignore_errors=True)
    size = 0
    for file in files:
        copy = folder / file.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)  # of what a link points to; its time stays, so that nothing is compiled again
        size += copy.stat().st_size
    if size > LARGEST:
        raise Failed(f"the bundle {folder} has {size >> 20} MiB, more than {LARGEST >> 20}")
    return size
