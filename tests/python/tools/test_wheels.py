"""`tools/wheels`: which wheel fits which Python, and which it refuses to publish."""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module("release.wheels")


def wheel(folder: Path, **files: bytes) -> Path:
    path = folder / "tarantella-0.1.0-cp312-abi3-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(("python", "built_with"), [("3.10", "3.10"), ("3.11", "3.11"), ("3.12", "3.12"), ("3.13", "3.12")])
def test_one_wheel_for_all_pythons_with_a_stable_abi(wheels, python, built_with):
    assert wheels.build.kind(python) == built_with


def test_a_good_one(wheels, tmp_path):
    wheels.check_contents(wheel(tmp_path, **{"tarantella/libtarantella.so.0.1": b"", "tarantella/__init__.py": b""}))


def test_one_that_brings_a_library_of_others(wheels, tmp_path):
    made = wheel(tmp_path, **{"tarantella.libs/libfmt-123.so.9": b"", "tarantella/__init__.py": b""})
    message = rf"{made.name} brings tarantella.libs/libfmt-123.so.9: add it to OF_THE_MACHINE, or link it statically"
    with pytest.raises(wheels.ReleaseError, match=message):
        wheels.check_contents(made)


def test_one_that_is_too_large(wheels, tmp_path):
    made = wheel(tmp_path, **{"tarantella/large": bytes(wheels.MAX_BYTES + 1)})
    with pytest.raises(wheels.ReleaseError, match=r"has 12.0 MiB: at most 12 are allowed"):
        wheels.check_contents(made)


def test_gpu_stream_has_the_name_that_the_package_looks_for(wheels, tmp_path):
    from tarantella.keras.reduction import prebuilt

    for header in prebuilt.HEADERS:
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text(header)
    source = ROOT / "python" / "extension" / "tensorflow" / "gpu_stream.cpp"
    assert wheels.gpu_stream.library_name(tmp_path) == prebuilt.name(tmp_path, source)


def test_each_tensorflow_of_the_matrix_has_a_gpu_stream(wheels):
    assert wheels.matrix.TENSORFLOWS[0] == "2.16" and len(set(wheels.matrix.TENSORFLOWS)) == len(wheels.matrix.TENSORFLOWS) == 6


@pytest.fixture
def cmake(tmp_path) -> Path:
    """A CMake folder that has found fmt and nanobind, and has not looked for CLI11."""
    folder, fmt, nanobind = (tmp_path / name for name in ("cmake", "fmt", "nanobind"))
    for each in (folder, fmt, nanobind):
        each.mkdir()
    (fmt / "fmt-config-version.cmake").write_text(
        'set(PACKAGE_VERSION "9.1.0")\n  set(PACKAGE_VERSION "${PACKAGE_VERSION} (64)")\n'
    )
    (nanobind / "nanobindConfigVersion.cmake").write_text('set(PACKAGE_VERSION "3.1.0")\n')
    (folder / "CMakeCache.txt").write_text(
        f"fmt_DIR:PATH={fmt}\nnanobind_DIR:PATH={nanobind}\nCLI11_DIR:PATH=CLI11_DIR-NOTFOUND\n"
    )
    return folder


def test_the_bill_of_materials(wheels, tmp_path, cmake):
    made = wheel(tmp_path, **{"tarantella/__init__.py": b""})
    bill = json.loads(wheels.sbom.write(made, cmake).read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(made.read_bytes()).hexdigest()
    assert [(part["name"], part["version"]) for part in bill["components"]] == [("fmt", "9.1.0"), ("nanobind", "3.1.0")]


def test_a_bill_with_the_cuda_runtime(wheels, tmp_path, cmake):
    (cmake / "libtarantella_cuda.so").write_text("")
    made = wheel(tmp_path, **{"tarantella/__init__.py": b""})
    with pytest.raises(wheels.ReleaseError, match=r"does not tell the version of CUDA"):
        wheels.sbom.write(made, cmake)
    compiler = cmake / "CMakeFiles" / "4.0.0"
    compiler.mkdir(parents=True)
    (compiler / "CMakeCUDACompiler.cmake").write_text('set(CMAKE_CUDA_COMPILER_VERSION "12.8.93")\n')
    bill = json.loads(wheels.sbom.write(made, cmake).read_text())
    assert (bill["components"][-1]["name"], bill["components"][-1]["version"]) == ("cudart", "12.8.93")


def test_a_gpu_part_that_asks_for_a_newer_driver_than_tensorflow(wheels, tmp_path, cmake):
    wheels.check_cuda(cmake)  # there is no GPU part
    (cmake / "libtarantella_cuda.so").write_text("")
    compiler = cmake / "CMakeFiles" / "4.0.0"
    compiler.mkdir(parents=True)
    (compiler / "CMakeCUDACompiler.cmake").write_text('set(CMAKE_CUDA_COMPILER_VERSION "12.9.86")\n')
    wheels.check_cuda(cmake)
    (compiler / "CMakeCUDACompiler.cmake").write_text('set(CMAKE_CUDA_COMPILER_VERSION "13.0.88")\n')
    with pytest.raises(wheels.ReleaseError, match=r"by CUDA 13\.0\.88: .* driver 580.* CUDA 12 in CUDACXX, or"):
        wheels.check_cuda(cmake)


def test_a_library_whose_version_is_not_known(wheels, tmp_path, cmake):
    (tmp_path / "fmt" / "fmt-config-version.cmake").unlink()
    with pytest.raises(wheels.ReleaseError, match=r"does not tell the version of fmt"):
        wheels.sbom.write(wheel(tmp_path, **{"tarantella/__init__.py": b""}), cmake)


def test_an_interpreter_that_is_not_there_is_named():
    command = [ROOT / "tools/wheels", "--python", "/nowhere/python"]
    done = subprocess.run(command, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 1
    message = "/nowhere/python is not a program that can be run: give the path of a Python interpreter"
    assert done.stderr == f"tools/wheels: {message}\n"
