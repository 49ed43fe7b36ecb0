"""Makes what comes along to a machine with a GPU: `tools/gpu-check --bundle` for its compiler, `--prebuilt` to need none."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpu_check import build, prebuilt
from gpu_check.bundle import BUNDLE, make_bundle
from gpu_check.machine import toolkit_version
from gpu_check.run import ROOT, Clock, Failed, call

PATIENCE = 3600  # seconds: two cores take a while
BUILT_IN = ROOT / "build" / "gpu-prebuilt-build"
AS_TESTED = {"TNT_WARNINGS_AS_ERRORS": "ON"}  # by our compiler, with the objects that ccache has of tools/test, for any x86-64


def bring_bundle() -> str:
    return f"{BUNDLE} has {make_bundle() / 2**20:.1f} MiB: bring it along with the checkout"


def bring_prebuilt() -> str:
    """Compiles everything for sm_90, packs it, and adds an MPI to compare with if PyPI can be reached."""
    nvcc = build.check_tools()
    build.compile_all(BUILT_IN, prebuilt.ARCHITECTURE, Clock(time.monotonic() + PATIENCE), AS_TESTED)
    no_mpi = build_mpi()
    prebuilt.pack(BUILT_IN, f"nvcc {toolkit_version(nvcc)}")
    with_mpi = f"without MPI ({no_mpi})" if no_mpi else download_mpi()
    size = prebuilt.size_of(prebuilt.FOLDER)
    return f"{prebuilt.FOLDER} has {size / 2**20:.1f} MiB, {with_mpi}: bring it along with the checkout"


def build_mpi() -> str:
    """The plug-ins for Open MPI. Returns why there are none, else nothing."""
    try:
        call(
            "build-mpi", ["cmake", "--build", BUILT_IN, "--target", "tarantella_mpi_openmpi", "tnt_bench_mpi_openmpi"], PATIENCE
        )
    except Failed:
        return "this machine has no mpicc of Open MPI, or the plug-ins for it cannot be built"
    return ""


def download_mpi() -> str:
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", folder]
        try:
            call("download-mpi", [*download, prebuilt.MPI_WHEEL], 120)
        except Failed as failure:
            return f"without MPI ({str(failure).splitlines()[0]})"
        (wheel,) = Path(folder).glob("*.whl")
        shutil.rmtree(prebuilt.MPI, ignore_errors=True)
        prebuilt.add_mpi(wheel)
        return f"with {wheel.name.split('-py3')[0]}"
