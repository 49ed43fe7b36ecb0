"""Trains with PyTorch on all ranks, gradients averaged by Tarantella: `tarantella -n 2 -- python torch_trainer.py`.

With --ddp each step is also PyTorch's own DistributedDataParallel (NCCL or Gloo): the gradients are compared, and the times.
Rank 0 prints one JSON object a model.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from reducer import Job, Reducer
from torch import nn
from torch.nn import functional as F

import models

WARM = 3


def times_of(step: Callable[[], object], steps: int, device: torch.device) -> tuple[float, float]:
    """Medians, in microseconds: of a step, and of the host's part, until everything is enqueued."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    whole, host = [], []
    for i in range(-WARM, steps):
        wait()
        begin = time.perf_counter()
        step()
        enqueued = time.perf_counter()
        wait()
        if i >= 0:
            whole.append((time.perf_counter() - begin) * 1e6)
            host.append((enqueued - begin) * 1e6)
    return statistics.median(whole), statistics.median(host)


def worst_difference(ours: nn.Module, theirs: nn.Module) -> float:
    """Of all gradients, relative to the largest of the same parameter."""
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return max(float((a.grad - b.grad).abs().max() / b.grad.abs().max().clamp_min(1e-30)) for a, b in pairs)


def run(job: Job, name: str, options: argparse.Namespace, device: torch.device) -> dict[str, object]:
    model, x, y = models.make(name, options.large, options.batch, 100 + job.rank)
    model, x, y = model.to(device), x.to(device), y.to(device)
    for tensor in model.state_dict().values():
        job.broadcast(tensor)
    plain, other = copy.deepcopy(model), copy.deepcopy(model)

    def backward(module: nn.Module) -> torch.Tensor:
        module.zero_grad(set_to_none=True)
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        return loss

    def reduced() -> torch.Tensor:
        loss = backward(model)
        reducer.finish()
        return loss

    reducer = Reducer(job, model)
    line: dict[str, object] = {"case": f"torch/{name}/{job.size} ranks", "buckets": reducer.buckets, "device": device.type}
    alone, alone_host = times_of(lambda: backward(plain), options.steps, device)
    ours, ours_host = times_of(reduced, options.steps, device)
    line |= {"us_alone": alone, "us": ours, "exposed_us": max(0.0, ours - alone)}
    line["bucket_host_us"] = max(0.0, ours_host - alone_host) / reducer.buckets
    if options.ddp:
        ddp = nn.parallel.DistributedDataParallel(other, broadcast_buffers=False)
        theirs, theirs_host = times_of(lambda: backward(ddp), options.steps, device)
        line |= {"ddp_us": theirs, "ddp_exposed_us": max(0.0, theirs - alone)}
        line["ddp_host_us"] = max(0.0, theirs_host - alone_host)
        reduced()
        backward(ddp)
        line["largest_difference"] = worst_difference(model, other)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    losses = []
    for _ in range(options.steps):
        losses.append(float(reduced().detach()))
        optimizer.step()
    reducer.close()
    return line | {"first_loss": losses[0], "last_loss": losses[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=("resnet", "gpt"), default=["resnet", "gpt"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="samples of a rank")
    parser.add_argument("--large", action="store_true", help="models as for a GPU")
    parser.add_argument("--cpu", action="store_true", help="also where there is a GPU")
    parser.add_argument("--ddp", action="store_true", help="compare with DistributedDataParallel")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available() and not options.cpu
    job = Job()
    device = torch.device("cuda", job.rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))
    if options.ddp:
        meet = os.environ.get("TNT_RENDEZVOUS", f"alone-{os.getpid()}").replace("/", "-")
        file = f"{tempfile.gettempdir()}/torch-trainer-{meet}"
        dist.init_process_group("nccl" if on_gpu else "gloo", f"file://{file}", rank=job.rank, world_size=job.size)
    for name in options.models:
        line = run(job, name, options, device)
        if job.rank == 0:
            print(json.dumps(line), flush=True)
    if options.ddp:
        dist.destroy_process_group()
    job.leave()


if __name__ == "__main__":
    sys.exit(main())
