"""examples/cuda_trainer: nvcc compiles it against what is installed, and its source, with kernels that run on the host, trains
as cpu_trainer does. On a GPU it is run by hand (examples/cuda_trainer/README.md)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.c_programs import EXAMPLES, ROOT, build_with_cmake, run, wheel_library, wheel_prefix
from support.launch import run_ranks
from test_c_trainer import BUCKETS, numbers

HOST = ROOT / "tests" / "support" / "cuda_on_host"
LAUNCH = re.compile(r"kernel<<<(.*), (.*), 0, stream>>>\(arguments\.\.\.\);")


def build_for_host(folder: Path) -> Path:
    """The trainer with CUDA's two words that g++ has not replaced: the launch, and the number of a device."""
    source = (EXAMPLES / "cuda_trainer" / "cuda_trainer.cu").read_text()
    source, launches = LAUNCH.subn(r"launch_on_host(\1, \2, kernel, arguments...);", source)
    assert launches == 1
    source = source.replace("choose_device();", "(choose_device(), TNT_DEVICE_HOST);")
    (folder / "trainer.cpp").write_text(source)
    folders = [f"-I{folder}" for folder in (HOST, EXAMPLES / "cuda_trainer", EXAMPLES / "common", wheel_prefix() / "include")]
    library = wheel_library()
    program = folder / "trainer"
    compiler = ("g++", "-std=c++17", "-O2", "-Wall", "-Wextra", f"-Wl,-rpath,{library.parent}")
    run(*compiler, *folders, folder / "trainer.cpp", library, "-o", program)
    return program


def test_it_trains_as_the_cpu_trainer_does(tmp_path: Path) -> None:
    words = ("--epochs", 3, "--batch", 100)
    serial = numbers(run(build_with_cmake(wheel_prefix(), "cpu_trainer", tmp_path / "cpu"), *words).stdout)
    trainer = build_for_host(tmp_path)
    for ranks in (1, 3):
        result = run_ranks(ranks, trainer, *words, env=BUCKETS).good()
        assert numbers(result.stdout) == pytest.approx(serial, rel=3e-6), result.said


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_nvcc_compiles_it(tmp_path: Path) -> None:
    flags = "-DCMAKE_CUDA_FLAGS=--Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror"
    trainer = build_with_cmake(wheel_prefix(), "cuda_trainer", tmp_path / "build", [flags])
    done = subprocess.run([trainer, "--epochs", "1"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:  # no GPU here
        assert done.stderr.splitlines()[-1].startswith("rank 0: no CUDA device can be used (cpu_trainer needs none): ")
    else:
        assert len(numbers(done.stdout)) == 2
