"""The checks of `tarantella doctor` on a host: one function for each subject, all without importing TensorFlow."""

import ctypes
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tarantella import _native, settings, vendors, versions
from tarantella.errors import TarantellaError
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line import devices
from tarantella.launcher.start.mpirun import find_mpirun
from tarantella.threads import usable_cores

OK, NOTE, PROBLEM = "ok", "note", "problem"
PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-macos"),
    "keras": ("keras",),
    "tf_keras": ("tf_keras", "tf-keras"),
}
"""The packages for training, and the names of their distributions."""
HIP_PLUGIN = "libtarantella_hip.so"
SMALL_SEGMENT = 1 << 30
FEW_DESCRIPTORS = 1024


@dataclass(frozen=True)
class Finding:
    """The result of one check, and a remedy."""

    subject: str
    state: str
    """OK, NOTE: training works without it; PROBLEM: training fails, or fails soon."""
    text: str
    remedy: str = ""


def findings() -> Iterator[Finding]:
    """All of this host, one by one."""
    for check in (_python, _packages, _library, _mpi, _gpus, _other_devices, _cores, _memory, _limits, _settings):
        yield from check()


def _python() -> Iterator[Finding]:
    yield Finding("Tarantella", OK, f"{_native.version()} on Python {platform.python_version()}, {platform.system()} "
                  f"{platform.release()}, {Path(_native.__file__).parent}")  # fmt: skip


def _packages() -> Iterator[Finding]:
    for name, distributions in PACKAGES.items():
        version, supported = next(filter(None, map(_version_of, distributions)), None), versions.supported(name)
        if version is None:
            yield _missing(name)
        elif supported.is_too_old(version):
            yield Finding(name, PROBLEM, f"{version} is too old: supported is {supported}", supported.install)
        elif supported.is_newer(version):
            yield Finding(name, NOTE, f"{version} was never tried with this version: supported is {supported}")
        else:
            yield Finding(name, OK, version)


def _missing(name: str) -> Finding:
    if name == "tf_keras":
        return Finding(name, NOTE, "not installed: it is needed for legacy Keras alone")
    remedy = "pip install 'tarantella[cpu]', or 'tarantella[gpu]' for GPUs"
    return Finding(name, PROBLEM, "not installed: collectives work without it, training does not", remedy)


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _folder() -> Path:
    """Where the library and its plug-ins are."""
    return Path(_native.__file__).parent


def _library() -> Iterator[Finding]:
    folder = _folder()
    parts = {
        "libtarantella_tensorflow.so": (PROBLEM, "operations for TensorFlow"),
        "libtarantella_mpi_openmpi.so": (NOTE, "jobs by Open MPI's mpirun"),
        "libtarantella_mpi_mpich.so": (NOTE, "jobs by the mpirun of MPICH, Intel MPI and MVAPICH"),
        "libtarantella_cuda.so": (NOTE, "training on GPUs"),
    }
    missing = {name: part for name, part in parts.items() if not (folder / name).exists()}
    if not missing:
        yield Finding("parts", OK, "operations for TensorFlow, Open MPI, MPICH, CUDA")
    for name, (state, use) in missing.items():
        yield Finding("parts", state, f"{folder / name} is not there: this installation has no {use}",
                      "install a package that was built where the libraries for it are installed")  # fmt: skip


def _mpi() -> Iterator[Finding]:
    try:
        mpirun = find_mpirun(["mpirun"])
    except UsageError as error:
        yield Finding("MPI", NOTE, str(error))
        return
    text = f"{mpirun}, {shutil.which('mpirun')}: {mpirun.version}"
    if (_folder() / mpirun.plugin).exists():
        yield Finding("MPI", OK, text)
    else:
        yield Finding("MPI", NOTE, f"{text}; this installation has no {mpirun.plugin}, which its ranks need",
                      "take a wheel that has it, or build where that MPI's mpicc is")  # fmt: skip


def _first_line(command: list[str], seconds: float = 30) -> str:
    """The first line of a program's output; empty if it cannot be started."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip().splitlines() or [""])[0]


def _gpus() -> Iterator[Finding]:
    count, reason = _native.device_count()
    if count > 0 and not Path("/proc/driver/nvidia").exists():
        yield Finding("GPUs", OK, f"{count} of AMD")
        yield _nccl("RCCL", "librccl.so.1", "install ROCm's package rccl")
    elif count > 0:
        names = _first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
        yield Finding("GPUs", OK, f"{count}{': ' * bool(names)}{names}")
        yield _nccl("NCCL", "libnccl.so.2", "pip install nvidia-nccl-cu12")
    elif Path("/proc/driver/nvidia").exists():
        yield Finding("GPUs", PROBLEM, f"the NVIDIA driver is loaded, but no GPU can be used: {reason}",
                      "check nvidia-smi and CUDA_VISIBLE_DEVICES; --no-gpu trains without them")  # fmt: skip
    else:
        yield Finding("GPUs", NOTE, f"none of NVIDIA: {reason}")


def _nccl(name: str, file: str, remedy: str) -> Finding:
    named = os.environ.get("TNT_NCCL_LIBRARY")
    try:
        library = ctypes.CDLL(named or file)
        number = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        return Finding(name, NOTE, f"not found by the loader ({error}); the one beside TensorFlow is searched for, too",
                       f"{remedy}, or name the library by TNT_NCCL_LIBRARY")  # fmt: skip
    return Finding(name, OK, f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}")


def _other_devices(root: Path = Path("/")) -> Iterator[Finding]:
    """Devices of other vendors, and TensorFlow's plug-ins, whose types TensorFlow is asked for if there are any."""
    present, plug_ins = devices.present(root), _plug_ins()
    others = [vendor for vendor in vendors.VENDORS if vendor.package]
    packages = {vendor.name for vendor in others if _version_of(vendor.package) is not None}
    shown = _devices_of_tensorflow() if packages or plug_ins else {}
    for vendor, package, kind, showing in ((each.name, each.package, each.kind, each.showing) for each in others):
        gpus = f"{present[vendor]} GPU{'s' * (present[vendor] > 1)}"
        if vendor not in packages and present[vendor] > 0:
            yield Finding(vendor, NOTE, f"{gpus}, and no {package} is installed: TensorFlow does not compute on them",
                          f"install {package} for the version of TensorFlow")  # fmt: skip
        elif vendor in packages and present[vendor] == 0:
            yield Finding(vendor, NOTE, f"{package} is installed, and no driver with a GPU: training computes on CPUs")
        elif vendor in packages and not shown.get(kind):
            yield Finding(
                vendor,
                NOTE,
                f"{gpus}, and TensorFlow shows no {kind}: training computes on CPUs",
                f"check {' and '.join(showing)}",
            )
        elif vendor in packages:
            on_them = vendor == "AMD" and (_folder() / HIP_PLUGIN).exists()
            how = "are reduced on them, if there is RCCL" if on_them else "travel through host memory"
            yield Finding(vendor, OK, f"{gpus}, {kind} in TensorFlow: gradients {how}")
    if plug_ins:
        types = ", ".join(f"{count} {kind}" for kind, count in shown.items() if kind != "CPU")
        yield Finding("plug-ins", OK if types else NOTE, f"{', '.join(plug_ins)}: TensorFlow shows {types or 'no device'}")
    if present["NVIDIA"] and present["AMD"]:
        each = f"GPUs of NVIDIA ({present['NVIDIA']}) and of AMD ({present['AMD']})"
        yield Finding("vendors", NOTE, f"{each}: TensorFlow computes on those of one vendor",
                      "say -n: without it, ranks are as many as the larger of these numbers")  # fmt: skip


def _plug_ins() -> list[str]:
    """The libraries that TensorFlow loads for devices of which it knows nothing."""
    return sorted({library.name for folder in sys.path for library in Path(folder).glob("tensorflow-plugins/*.so")})


def _devices_of_tensorflow() -> dict[str, int]:
    """How many devices of each type TensorFlow shows, in a process of its own; empty if it cannot be asked."""
    ask = "import collections as c, json, tensorflow as tf; " \
          "print(json.dumps(c.Counter(d.device_type for d in tf.config.list_physical_devices())))"  # fmt: skip
    try:
        return dict(json.loads(_first_line([sys.executable, "-c", ask], seconds=180)))  # slow file systems
    except ValueError:
        return {}


def _cores() -> Iterator[Finding]:
    cores, present = usable_cores(), os.cpu_count() or 1
    limit = "" if cores == present else f" of {present}: affinity or a cgroup's quota allows no more"
    yield Finding("cores", OK, f"{cores}{limit}")
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        threads = os.environ.get(name, "")
        if threads.isdigit() and int(threads) > cores:
            yield Finding("threads", NOTE, f"{name}={threads} on {cores} cores, for each rank",
                          f"leave {name} unset: the launcher shares the cores among the ranks")  # fmt: skip


def _memory() -> Iterator[Finding]:
    available = _meminfo().get("MemAvailable", 0)
    state = OK if available >= SMALL_SEGMENT else PROBLEM
    remedy = "" if state == OK else "end other programs: each rank takes about 0.5 GiB for TensorFlow alone"
    yield Finding("memory", state, f"{available / 2**30:.1f} GiB available", remedy)


def _meminfo(file: Path = Path("/proc/meminfo")) -> Mapping[str, int]:
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}


def _limits() -> Iterator[Finding]:
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= descriptors < FEW_DESCRIPTORS:
        yield Finding("limits", NOTE, f"a process may open {descriptors} files", f"ulimit -n {FEW_DESCRIPTORS}, for many ranks")
    for kind, name in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_FSIZE, "-f")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Finding("limits", NOTE, f"ulimit {name} is {limit // 1024} KiB: shared memory may not fit",
                          f"ulimit {name} unlimited")  # fmt: skip


def _settings() -> Iterator[Finding]:
    given = {name: value for name, value in os.environ.items() if name.startswith("TNT_")}
    for name, value in sorted(given.items()):
        try:
            settings.check({name: value})
        except TarantellaError as error:
            yield Finding("settings", PROBLEM, str(error), f"unset {name}, or correct it")
        else:
            yield Finding("settings", OK, f"{name}={value}")
