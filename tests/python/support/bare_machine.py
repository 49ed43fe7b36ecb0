"""A machine with compilers and without any library's headers, made of links: what a GPU machine without a network has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PACKAGES = ("libc6-dev", "linux-libc-dev", "libcrypt-dev", "libstdc++-*-dev")
TOOLS = ("cmake", "ninja", "ccache", "python3", "ar", "as", "ld", "nm", "ranlib", "objcopy", "objdump", "readelf", "strip",
         "sh", "rm", "mkdir", "cat", "env", "bash", "uname", "sed", "grep", "dirname")  # fmt: skip
TOOLCHAIN = "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\n"


def output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def make(folder: Path) -> dict[str, str]:
    """Makes it anew, and returns the environment in which programs see no other: PATH, and CMake's toolchain file.

    Compilers are wrapped: their root has the headers of the C and C++ libraries only. The folder's place is a part of all
    paths to headers, so the same place gets the same objects from ccache.
    """
    shutil.rmtree(folder, ignore_errors=True)
    root, programs = folder / "root", folder / "bin"
    (root / "usr").mkdir(parents=True)
    programs.mkdir()
    for name in ("usr/lib", "usr/lib32", "usr/lib64"):
        if Path("/", name).exists():
            (root / name).symlink_to(Path("/", name))
    for name in ("lib", "lib64"):
        (root / name).symlink_to(Path("usr", name))
    packages = output("dpkg-query", "-W", "-f=${binary:Package}\n", *PACKAGES)
    for file in map(Path, output("dpkg", "-L", *packages)):
        if file.is_relative_to("/usr/include") and file.is_file():
            link = root / file.relative_to("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    for tool in TOOLS:
        if found := shutil.which(tool):
            (programs / tool).symlink_to(found)
    for name, compiler in (("c++", "g++"), ("g++", "g++"), ("cc", "gcc"), ("gcc", "gcc")):
        wrapper = programs / name
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which(compiler)} --sysroot="${{0%/bin/*}}/root" "$@"\n')
        wrapper.chmod(0o755)
    (folder / "toolchain.cmake").write_text(TOOLCHAIN)
    return {"PATH": str(programs), "CMAKE_TOOLCHAIN_FILE": str(folder / "toolchain.cmake"),
            "CUDAHOSTCXX": str(programs / "g++"), "CCACHE_COMPILERCHECK": "content"}  # fmt: skip
