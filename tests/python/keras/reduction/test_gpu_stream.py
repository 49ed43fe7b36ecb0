"""The library that tells TensorFlow's stream: compiled against the installed TensorFlow, kept; errors say what to do."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from support.c_programs import ROOT, run

tf = pytest.importorskip("tensorflow")

from tarantella.errors import UnsupportedError  # noqa: E402
from tarantella.keras.reduction import gpu_stream, prebuilt  # noqa: E402

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(cache: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    return monkeypatch


def missing_symbols(library: Path) -> set[str]:
    """What the library needs of others, but for the C and C++ runtimes."""
    listed = run("nm", "-D", "--undefined-only", library).stdout.split("\n")
    names = {line.split()[-1] for line in listed if line.strip()}
    return {name for name in names if "GLIBC" not in name and "CXXABI" not in name and not name.startswith(("_ITM", "__gmon"))}


@needs_compiler
def test_it_is_compiled_once_and_needs_what_tensorflow_exports(environment: pytest.MonkeyPatch, cache: Path) -> None:
    before = os.umask(0o002)
    file = gpu_stream.compiled()
    os.umask(before)
    assert file.stat().st_mode & 0o022 == 0
    assert file.parent == cache / "tarantella" and tf.__version__ in file.name
    framework = Path(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", framework).stdout.splitlines()}
    missing = missing_symbols(file)
    assert missing and missing <= exported
    assert "cuda" not in run("ldd", file).stdout
    environment.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert gpu_stream.compiled() == file
    assert not [path for path in file.parent.iterdir() if path.suffix not in {".so", ".lock"}]


@needs_compiler
def test_it_can_be_asked_by_a_kernel(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a kernel of the C API, with TensorFlow's own context. On a CPU there is no stream."""
    (tmp_path / "op.cpp").write_text(
        dedent("""
        #include "tensorflow_c.h"
        static void* (*stream_of)(void*) = nullptr;
        static void* create(TF_OpKernelConstruction*) { return nullptr; }
        static void compute(void*, TF_OpKernelContext* context) {
          TF_Status* status = TF_NewStatus();
          TF_Tensor* out = TF_AllocateOutput(context, 0, TF_INT64, nullptr, 0, sizeof(int64_t), status);
          *static_cast<int64_t*>(TF_TensorData(out)) = reinterpret_cast<int64_t>(stream_of(context));
          TF_DeleteTensor(out);
          TF_DeleteStatus(status);
        }
        extern "C" void set_stream_of(void* (*function)(void*)) { stream_of = function; }
        static const int registered = [] {
          TF_Status* status = TF_NewStatus();
          TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("TntTestStream");
          TF_OpDefinitionBuilderAddOutput(op, "stream: int64");
          TF_OpDefinitionBuilderSetIsStateful(op, true);
          TF_RegisterOpDefinition(op, status);
          TF_RegisterKernelBuilder("TntTestStream", TF_NewKernelBuilder("TntTestStream", "CPU", create, compute, nullptr),
                                   status);
          TF_DeleteStatus(status);
          return 0;
        }();
        """)
    )
    op = tmp_path / "op.so"
    headers = ROOT / "python" / "extension" / "tensorflow"
    run("g++", "-shared", "-fPIC", f"-I{headers}", tmp_path / "op.cpp", "-o", op, *tf.sysconfig.get_link_flags())
    module = tf.load_op_library(str(op))
    function = ctypes.cast(gpu_stream.load().tnt_tensorflow_gpu_stream, ctypes.c_void_p)
    ctypes.CDLL(str(op)).set_stream_of(function)
    with tf.device("CPU:0"):
        assert int(module.tnt_test_stream()) == 0


def test_what_cannot_be_compiled_is_said(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    for value, reason in {
        str(compiler): "compiler failed: x.cpp:1: error: no such thing",
        "no-such-compiler -m64": "CXX=no-such-compiler is not a program that can be run",
        "g++ '": "CXX cannot be read as a command",
    }.items():
        environment.setenv("CXX", value)
        with pytest.raises(UnsupportedError, match="install g\\+\\+ 9 or newer, or name a compiler in CXX") as caught:
            gpu_stream.compiled()
        assert reason in str(caught.value) and tf.__version__ in str(caught.value)
    environment.delenv("CXX")
    environment.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="there is no C\\+\\+ compiler"):
        gpu_stream.compiled()
    assert {path.suffix for path in (tmp_path / "tarantella").iterdir()} == {".lock"}
    environment.delenv("XDG_CACHE_HOME")
    environment.delenv("HOME")
    with pytest.raises(UnsupportedError, match="neither XDG_CACHE_HOME nor HOME is set"):
        gpu_stream.compiled()


def test_a_library_that_does_not_fit_is_named(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr(gpu_stream, "compiled", lambda: tmp_path / "gpu_stream.so")
    (tmp_path / "gpu_stream.so").write_text("no library")
    with pytest.raises(UnsupportedError, match=r"gpu_stream.so does not fit it \(.*\): delete that file"):
        gpu_stream.load()


def test_a_library_that_others_may_have_written_is_made_anew(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("XDG_CACHE_HOME", str(tmp_path))
    whole = b"compiled"

    def compile_fast(_source: Path, _flags: list[str], file: Path) -> None:
        (tmp_path / "beside").write_bytes(whole)
        os.replace(tmp_path / "beside", file)

    environment.setattr(gpu_stream, "_compile", compile_fast)
    file = gpu_stream.compiled()
    for planted in ("mode", "owner", "link"):
        file.unlink()
        if planted == "link":
            (tmp_path / "planted.so").write_bytes(b"planted")
            file.symlink_to(tmp_path / "planted.so")
        else:
            file.write_bytes(b"planted")
            file.chmod(0o777 if planted == "mode" else 0o755)
        if planted == "owner" and os.geteuid() == 0:
            os.chown(file, 65534, 65534)
        elif planted == "owner":
            continue
        assert gpu_stream.compiled() == file
        assert file.read_bytes() == whole and not file.is_symlink()
    file.chmod(0o777)
    environment.setattr(gpu_stream, "compiled", lambda: file)  # changed after it was looked at
    with pytest.raises(UnsupportedError, match="belongs to another user, or others may write to it: delete that file"):
        gpu_stream.load()


@needs_compiler
def test_that_of_the_wheel_needs_no_compiler(environment: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> None:
    file = gpu_stream.compiled()
    beside = tmp_path / prebuilt.name(Path(tf.sysconfig.get_include()), gpu_stream.SOURCE)
    shutil.copy(file, beside)
    environment.setattr(gpu_stream, "PREBUILT", tmp_path)
    environment.setattr(gpu_stream, "compiled", lambda: pytest.fail("compiled"))
    assert gpu_stream.load()._name == str(beside)


def test_that_of_a_wheel_that_does_not_fit_is_compiled(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / prebuilt.name(Path(tf.sysconfig.get_include()), gpu_stream.SOURCE)
    environment.setattr(gpu_stream, "PREBUILT", tmp_path)
    environment.setattr(gpu_stream, "compiled", lambda: Path("/nowhere/compiled.so"))
    for content in (None, b"no library"):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(UnsupportedError, match=r"/nowhere/compiled\.so does not fit it"):
            gpu_stream.load()


def test_other_headers_are_another_file(tmp_path: Path) -> None:
    include = Path(tf.sysconfig.get_include())
    for header in prebuilt.HEADERS:
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(include / header, tmp_path / header)
    name = prebuilt.name(include, gpu_stream.SOURCE)
    assert prebuilt.name(tmp_path, gpu_stream.SOURCE) == name
    with (tmp_path / prebuilt.HEADERS[-1]).open("a") as file:
        file.write("// changed")
    assert prebuilt.name(tmp_path, gpu_stream.SOURCE) != name


@pytest.mark.parametrize(
    ("rocm", "drivers", "hidden", "expected"),
    [
        (False, set(), {}, ""),
        (True, {"AMD", "HIP_PLUGIN"}, {}, ""),
        (False, {"NVIDIA", "AMD"}, {}, ""),  # a library without AMD's part cannot take AMD's
        (
            True,
            {"NVIDIA", "AMD"},
            {},
            "TensorFlow uses GPUs of AMD, and Tarantella might take this node's of NVIDIA: set CUDA_",
        ),
        (True, {"NVIDIA", "AMD"}, {"CUDA_VISIBLE_DEVICES": "-1"}, ""),
        (
            False,
            {"AMD", "HIP_PLUGIN"},
            {},
            "TensorFlow uses GPUs of NVIDIA, and Tarantella might take this node's of AMD: set HIP_",
        ),
        (False, {"AMD", "HIP_PLUGIN"}, {"HIP_VISIBLE_DEVICES": "-1"}, ""),
    ],
)
def test_a_stream_is_not_given_to_devices_of_another_vendor(
    rocm: bool,
    drivers: set[str],
    hidden: dict[str, str],
    expected: str,
    tmp_path: Path,
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setattr(tf.sysconfig, "get_build_info", lambda: {"is_rocm_build": rocm})
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        environment.delenv(variable, raising=False)
    for variable, value in hidden.items():
        environment.setenv(variable, value)
    for driver in ("NVIDIA", "AMD", "HIP_PLUGIN"):
        environment.setattr(gpu_stream, driver, tmp_path if driver in drivers else tmp_path / "missing")
    reason = gpu_stream.other_vendor()
    assert reason.startswith(expected) and bool(reason) == bool(expected)
