"""Installations to build C programs against, and the two ways to build one: CMake and pkg-config."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import tarantella

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
RELEASE = ROOT / "build" / "release"


def run(*command: object, env: dict[str, str] | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """The command, which has to succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


def install_release(prefix: Path) -> Path:
    """What `cmake --install` makes of the release build."""
    if not (RELEASE / "cmake_install.cmake").exists():
        pytest.skip("no release build: cmake --preset release && cmake --build --preset release")
    run("cmake", "--install", RELEASE, "--prefix", prefix)
    return prefix


def wheel_prefix() -> Path:
    """The Python package is a prefix, too."""
    return Path(tarantella.__file__).parent


def wheel_library() -> Path:
    """Its name has the version of the API."""
    (library,) = wheel_prefix().glob("libtarantella.so.*")
    return library


def build_with_cmake(prefix: Path, example: str, folder: Path, options: Sequence[str] = ()) -> Path:
    """The example, by its own CMakeLists.txt."""
    definitions = {
        "CMAKE_PREFIX_PATH": prefix,
        "CMAKE_C_FLAGS": "-Wall -Wextra -Werror",
        "CMAKE_FIND_USE_PACKAGE_REGISTRY": "OFF",  # nothing else on this machine may stand in for the prefix
        "CMAKE_FIND_USE_CMAKE_SYSTEM_PATH": "OFF",
    }
    run("cmake", "-S", EXAMPLES / example, "-B", folder, *(f"-D{key}={value}" for key, value in definitions.items()), *options)
    assert str(prefix) in (folder / "CMakeCache.txt").read_text()
    run("cmake", "--build", folder)
    return folder / example


def build_with_pkg_config(prefix: Path, example: str, folder: Path) -> Path:
    """The example, by one call of the compiler."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config on this machine")
    env = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "tarantella", env=env).stdout)  # as a shell reads them
    (libraries,) = shlex.split(run("pkg-config", "--variable=libdir", "tarantella", env=env).stdout)
    folder.mkdir()
    sources = (EXAMPLES / example / f"{example}.c", "-I", EXAMPLES / "common", "-o", folder / example)
    strict = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2")
    run("cc", *strict, *sources, *flags, f"-Wl,-rpath,{libraries}", "-lm")
    return folder / example


BUILDERS = {"cmake": build_with_cmake, "pkg-config": build_with_pkg_config}
