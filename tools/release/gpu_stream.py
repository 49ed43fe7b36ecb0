"""Compiles gpu_stream.cpp for each TensorFlow that is promised, so that no compiler is needed where a wheel is installed."""

from __future__ import annotations

import runpy
import shutil
import time
from pathlib import Path

from release.environments import FOLDER, ROOT, ReleaseError, run, said, uv

PACKAGE = ROOT / "python" / "tarantella"
SOURCE = ROOT / "python" / "extension" / "tensorflow" / "gpu_stream.cpp"
PYTHON = "3.11"
"""One for which PyPI has a wheel of each TensorFlow."""
# as tf.sysconfig.get_compile_flags() has them for all these versions
FLAGS = ("-O2", "-shared", "-fPIC", "-w", "-s", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")


def build(versions: list[str]) -> Path:
    """The folder with a library for each version, such as ``2.21``. TensorFlow's headers are those of its wheel on PyPI."""
    out, start = FOLDER / "gpu_stream", time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for version in versions:
        headers, log = FOLDER / "headers" / version, FOLDER / "log" / f"gpu_stream-{version}.log"
        requirement = f"tensorflow-cpu=={version}.*"
        target = ("--target", headers, "--python-version", PYTHON, "--only-binary", ":all:")
        try:
            run([uv(), "pip", "install", "--no-deps", *target, requirement], log)
            tensorflow = headers / "tensorflow"
            file = out / library_name(tensorflow / "include")
            link = (f"-L{tensorflow}", "-l:libtensorflow_framework.so.2")
            run(["g++", *FLAGS, f"-I{tensorflow / 'include'}", SOURCE, "-o", file, *link], log)
        except OSError as error:
            raise ReleaseError(f"gpu_stream.cpp for TensorFlow {version}: {error}") from error
        finally:
            shutil.rmtree(headers, ignore_errors=True)
    size = sum(file.stat().st_size for file in out.iterdir())
    said(start, f"gpu_stream for TensorFlow {', '.join(versions)}: {size / 1024:.0f} KiB")
    return out


def library_name(include: Path) -> str:
    """As the package looks for it. Its module is read by its path: importing the package needs TensorFlow."""
    names = runpy.run_path(str(PACKAGE / "keras" / "reduction" / "prebuilt.py"))
    return str(names["name"](include, SOURCE))
