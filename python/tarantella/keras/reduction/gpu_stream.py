"""A small library that tells our ops on which stream TensorFlow runs them: CUDA's, or HIP's in TensorFlow for ROCm.

The ops are built once for all versions, against TensorFlow's C API, which does not tell the stream. The C++ API does, but its
layout belongs to one version. A wheel has this one function for each TensorFlow that it promises. For another TensorFlow it is
compiled against the headers of the one in use, with the compiler of this machine, and stored in the cache folder. It links no
vendor's runtime. TensorFlow for ROCm has the same headers for streams, and its handle is the hipStream_t: read, not run.
"""

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import tensorflow as tf

from tarantella import _native, runtime
from tarantella.environment import cache_folder, cxx
from tarantella.errors import UnsupportedError
from tarantella.keras.reduction import prebuilt

FUNCTION = "tnt_tensorflow_gpu_stream"
PREBUILT = Path(__file__).parents[2] / "gpu_stream"
SOURCE = Path(__file__).parents[2] / "gpu_stream.cpp"
COMPILERS = ("g++", "c++", "clang++")
SECONDS = 300  # it takes 5 to 30
NVIDIA = Path("/proc/driver/nvidia/gpus")
AMD = Path("/dev/kfd")
HIP_PLUGIN = Path(_native.__file__).parent / "libtarantella_hip.so"


def load() -> ctypes.CDLL:
    """The library with `tnt_tensorflow_gpu_stream`: that of the wheel, else compiled if the cache does not have it.

    Raises:
        UnsupportedError: it can be neither found nor compiled; the text says why, and what to do.
    """
    if (here := _wheel_library()) is not None:
        return here
    file = compiled()
    try:
        # Stays open: the loader would take a library that is opened later by this name for the same
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        if not _trusted(os.fstat(descriptor)):
            raise _unsupported(f"{file} belongs to another user, or others may write to it: delete that file")
        loaded = ctypes.CDLL(f"/proc/self/fd/{descriptor}")  # the file that was looked at, whatever its name is by now
        getattr(loaded, FUNCTION)
    except (OSError, AttributeError) as error:
        raise _unsupported(f"{file} does not fit it ({error}): delete that file") from error
    return loaded


def other_vendor() -> str:
    """Why TensorFlow's GPUs may not be those of the library, to which its streams would mean nothing; empty if they are.

    The library takes NVIDIA's devices if it can use any, else AMD's.
    """
    rocm = tf.sysconfig.get_build_info().get("is_rocm_build", False)
    other, driver, hiding = ("NVIDIA", NVIDIA, "CUDA_VISIBLE_DEVICES") if rocm else ("AMD", AMD, "HIP_VISIBLE_DEVICES")
    takes_other = driver.exists() and (rocm or HIP_PLUGIN.exists())
    if not takes_other or os.environ.get(hiding) == "-1":
        return ""
    uses = "AMD" if rocm else "NVIDIA"
    return (
        f"TensorFlow uses GPUs of {uses}, and Tarantella might take this node's of {other}: set {hiding}=-1, which hides those"
    )


def _wheel_library() -> ctypes.CDLL | None:
    """None if the wheel has none for the headers of this TensorFlow."""
    try:
        file = PREBUILT / prebuilt.name(Path(tf.sysconfig.get_include()), SOURCE)
        if "-D_GLIBCXX_USE_CXX11_ABI=1" not in tf.sysconfig.get_compile_flags() or not file.exists():
            return None
        loaded = ctypes.CDLL(str(file))
        getattr(loaded, FUNCTION)
    except (OSError, AttributeError) as error:
        runtime.logger.info("the library that tells TensorFlow's stream is compiled; that of the wheel does not fit: %s", error)
        return None
    return loaded


def compiled() -> Path:
    """The file of that library. One process on a node compiles it; the others wait."""
    flags = ["-O2", "-shared", "-fPIC", "-w", *tf.sysconfig.get_compile_flags()]
    folder = cache_folder()
    if folder is None:
        raise _unsupported("neither XDG_CACHE_HOME nor HOME is set: there is no folder to keep it in")
    made_of = "\n".join([SOURCE.read_text(encoding="utf-8"), platform.machine(), *flags])
    file = folder / f"gpu_stream-{tf.__version__}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.so"
    if _trusted_file(file):
        return file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(file.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _trusted_file(file):
                _compile(SOURCE, flags, file)
    except OSError as error:
        raise _unsupported(str(error)) from error
    return file


def _compile(source: Path, flags: list[str], file: Path) -> None:
    command = _compiler()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:  # it appears whole, or not at all
        beside = os.path.join(folder, file.name)
        words = [*command, *flags, str(source), "-o", beside, *tf.sysconfig.get_link_flags()]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise _unsupported(f"{command[0]} took more than {SECONDS} s") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            first = next((line for line in said if "error" in line), said[0])
            raise _unsupported(f"{command[0]} failed: {first}")
        os.chmod(beside, 0o755)  # a umask of 002 lets the group write
        os.replace(beside, file)


def _trusted_file(file: Path) -> bool:
    """Whether the library is there, and nobody else can have written it. One that another may have written is made anew."""
    try:
        return _trusted(os.stat(file, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _trusted(status: os.stat_result) -> bool:
    mine = status.st_uid in (os.geteuid(), 0)
    return stat.S_ISREG(status.st_mode) and mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compiler() -> list[str]:
    try:
        chosen = cxx()
    except ValueError as error:
        raise _unsupported(f"CXX cannot be read as a command: {error}") from error
    if chosen and shutil.which(chosen[0]) is None:
        raise _unsupported(f"CXX={chosen[0]} is not a program that can be run")
    found = chosen or [name for name in COMPILERS if shutil.which(name) is not None][:1]
    if not found:
        raise _unsupported(f"there is no C++ compiler ({', '.join(COMPILERS)})")
    return found


def _unsupported(reason: str) -> UnsupportedError:
    error: UnsupportedError = UnsupportedError(
        f"no library tells on which CUDA stream TensorFlow {tf.__version__} runs: {reason}: "
        "install g++ 9 or newer, or name a compiler in CXX"
    )
    return error
