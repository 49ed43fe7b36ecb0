"""Builds the programs of the other parts into a folder that can be moved, or takes those that came along."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from pathlib import Path

from gpu_check import prebuilt
from gpu_check.bundle import HEADERS, prefixes
from gpu_check.machine import Gpu, find_tool
from gpu_check.run import BUILD, ROOT, Clock, Failed, call

TARGETS = ("tarantella", "tarantella_cuda", "tnt_gpu_bench", "tnt_gpu_tests", "tnt-bench")


def missing_headers() -> list[str]:
    """The Debian packages of the libraries that the compiler does not find."""
    compiler = os.environ.get("CXX", "c++")
    folders = [f"-I{prefix}/include" for prefix in prefixes()]
    missing = []
    for header, package in HEADERS.items():
        words = [compiler, *folders, "-std=c++20", "-E", "-x", "c++", "-", "-o", os.devnull]
        done = subprocess.run(words, input=f"#include <{header}>\n", text=True, capture_output=True)
        if done.returncode != 0:
            missing.append(package)
    return missing


def check_tools() -> str:
    """The path of nvcc, if everything else is available, too."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise Failed("there is no nvcc: put the CUDA toolkit's bin folder into PATH, or name nvcc in CUDACXX")
    for tool in ("cmake", os.environ.get("CXX", "c++")):
        if shutil.which(tool) is None:
            raise Failed(f"there is no {tool}: install it, by tools/setup or otherwise")
    return nvcc


def install_headers(clock: Clock) -> None:
    missing = missing_headers()
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing]):
            try:
                call(f"build-{words[2]}", words, clock.limit(60), {"DEBIAN_FRONTEND": "noninteractive"})
            except Failed:
                break  # what is still missing is said below
        missing = missing_headers()
    if missing:
        raise Failed(
            f"headers are missing: install {' '.join(missing)}, bring along the folder that `tools/gpu-check --bundle` makes "
            "on a machine that has them, or name a folder that has them below include and lib in CMAKE_PREFIX_PATH"
        )


def compile_all(folder: Path, architecture: str, clock: Clock, extra: dict[str, str]) -> None:
    """Configures and builds all programs. extra: CMake's variables beside those of every check.

    Raises Failed if one cannot be built, and leaves the others.
    """
    nvcc = check_tools()
    install_headers(clock)
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CUDA_COMPILER": nvcc,
        "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON",  # the folder can be moved
        "TNT_CUDA": "ON",
        "TNT_CUDA_ARCHITECTURES": architecture,
        "TNT_WARNINGS_AS_ERRORS": "OFF",  # another compiler than ours may warn of other things
        **extra,
    }
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    definitions = [f"-D{key}={value}" for key, value in options.items()]
    configured = (folder / "CMakeCache.txt").exists()  # by whatever generator
    configure = ["cmake", "-S", ROOT, "-B", folder, *([] if configured else generator), *definitions]
    call("configure", configure, clock.limit(60), {"CMAKE_PREFIX_PATH": ":".join(prefixes())})
    for place in prebuilt.PLACES.values():
        (folder / place).unlink(missing_ok=True)  # one of other sources would be taken for new
    jobs = str(os.cpu_count() or 1)
    go_on = ["--", "-k", "0"] if (folder / "build.ninja").exists() else ["--", "-k"]
    example = ROOT / "examples" / "cuda_trainer" / "cuda_trainer.cu"
    folders = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'examples' / 'common'}", f"-L{folder / 'src'}"]
    flags = ["-std=c++17", "-O2", f"-arch=sm_{architecture}", "-Xlinker", "-rpath=$ORIGIN/src"]
    failures = []
    for name, command in (
        ("build", ["cmake", "--build", folder, "--parallel", jobs, "--target", *TARGETS, *go_on]),
        ("build-trainer", [nvcc, *flags, *folders, example, "-ltarantella", "-o", folder / prebuilt.PLACES["trainer"]]),
    ):
        try:
            call(name, command, clock.limit(math.inf), {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"})
        except Failed as failure:
            failures.append(str(failure))
    if failures:
        raise Failed("\n".join(failures))


def build(gpu: Gpu, clock: Clock) -> str:
    reason = prebuilt.why_unusable(gpu)
    if not reason:
        return f"those of {prebuilt.FOLDER.relative_to(ROOT)}, {prebuilt.made()['toolkit']}"
    compile_all(BUILD, gpu.architecture, clock, {})
    return f"for sm_{gpu.architecture}, because {reason}"
