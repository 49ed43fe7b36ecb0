"""Tarantella's reducer for the gradients of a PyTorch module, through the C API: `tarantella.h` in ctypes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

import torch

P, SIZE, INT, DOUBLE = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_double
HOST, FUSION_DEFAULT, WIRE_OWN = -1, ctypes.c_size_t(-1).value, -2
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
LEGACY_STREAM = 1  # cudaStreamLegacy; NULL means host memory


class Tensor(ctypes.Structure):  # tnt_tensor_t
    _fields_ = (("name", ctypes.c_char_p), ("count", SIZE), ("dtype", INT))


class Options(ctypes.Structure):  # tnt_reducer_options_t, up to determinism
    _fields_ = (
        ("size", SIZE), ("name", ctypes.c_char_p), ("context", ctypes.c_char_p), ("fusion_threshold", SIZE),
        ("wire_dtype", INT), ("gradient_order", P), ("device", INT), ("determinism", INT),
    )  # fmt: skip


def load() -> ctypes.CDLL:
    """The library that TARANTELLA_LIBRARY names, else that of the installed Python package."""
    file = os.environ.get("TARANTELLA_LIBRARY")
    if not file:
        spec = importlib.util.find_spec("tarantella")
        if spec is None or spec.origin is None:
            raise SystemExit("torch_trainer: name libtarantella.so in TARANTELLA_LIBRARY, or install tarantella")
        (file,) = map(str, Path(spec.origin).parent.glob("libtarantella.so.*"))
    library = ctypes.CDLL(file)
    library.tnt_last_error.restype = ctypes.c_char_p
    library.tnt_reducer_ready.argtypes = (P, SIZE, P, P, DOUBLE, P)
    library.tnt_reducer_finish.argtypes = library.tnt_reducer_bucket_count.argtypes = (P, P)
    library.tnt_reducer_check.argtypes = library.tnt_reducer_destroy.argtypes = (P,)
    library.tnt_broadcast.argtypes = (P, P, P, SIZE, INT, INT, P, P)
    return library


class Job:
    """The ranks that the launcher started, or this process alone."""

    def __init__(self) -> None:
        self.library, self.world = load(), P()
        rank, size = INT(), INT()
        self.check(self.library.tnt_init(None))
        self.check(self.library.tnt_comm_world(ctypes.byref(self.world)))
        self.check(self.library.tnt_comm_rank(self.world, ctypes.byref(rank)))
        self.check(self.library.tnt_comm_size(self.world, ctypes.byref(size)))
        self.rank, self.size = rank.value, size.value

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.tnt_last_error().decode())

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's values on all ranks."""
        host = tensor.detach().cpu().contiguous()
        data = host.view(torch.uint8) if host.dim() else host.reshape(1).view(torch.uint8)
        self.check(self.library.tnt_broadcast(self.world, data.data_ptr(), data.data_ptr(), data.numel(), 5, 0, None, None))
        tensor.detach().copy_(host)

    def leave(self) -> None:
        self.check(self.library.tnt_finalize())


class Reducer:
    """Averages the gradients of a module over ranks while backward computes the others. Call `finish` after `backward`."""

    def __init__(self, job: Job, module: torch.nn.Module) -> None:
        self.job, self.handle = job, P()
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.device = named[0][1].device
        index = HOST if self.device.type == "cpu" else self.device.index or 0
        tensors = (Tensor * len(named))(*(Tensor(name.encode(), p.numel(), DTYPES[p.dtype]) for name, p in named))
        options = Options(ctypes.sizeof(Options), b"gradients", None, FUSION_DEFAULT, WIRE_OWN, None, index, 0)
        create = job.library.tnt_reducer_create
        job.check(create(job.world, tensors, SIZE(len(named)), ctypes.byref(options), ctypes.byref(self.handle)))
        buckets = SIZE()
        job.check(job.library.tnt_reducer_bucket_count(self.handle, ctypes.byref(buckets)))
        self.buckets = buckets.value
        self.hooks = [p.register_post_accumulate_grad_hook(self._hook(i)) for i, (_, p) in enumerate(named)]

    def stream(self) -> int | None:
        if self.device.type == "cpu":
            return None
        return torch.cuda.current_stream(self.device).cuda_stream or LEGACY_STREAM

    def _hook(self, index: int):
        def ready(parameter: torch.nn.Parameter) -> None:
            if not parameter.grad.is_contiguous():  # the reducer reads count elements one after another
                parameter.grad = parameter.grad.contiguous()
            place = parameter.grad.data_ptr()
            self.job.check(
                self.job.library.tnt_reducer_ready(self.handle, index, place, place, 1.0 / self.job.size, self.stream())
            )

        return ready

    def finish(self) -> None:
        """Later work on the current stream sees the averages. On a GPU the host does not wait."""
        self.job.check(self.job.library.tnt_reducer_finish(self.handle, self.stream()))

    def close(self) -> None:
        """Raises the error of a step whose averages are lost."""
        for hook in self.hooks:
            hook.remove()
        self.job.check(self.job.library.tnt_reducer_check(self.handle))
        self.job.check(self.job.library.tnt_reducer_destroy(self.handle))
