"""Gloo's all_reduce through PyTorch, one JSON object a size, by rank 0; run by gpu-check on each rank (RANK, WORLD_SIZE).

`gloo.py FILE SECONDS BYTES...`: FILE is where the ranks find each other.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

LEAST, MOST = 5, 2000  # times of a size


def times_of(data: torch.Tensor, seconds: float) -> list[float]:
    for _ in range(3):
        dist.all_reduce(data)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(data)
    count = torch.tensor(seconds / max(time.perf_counter() - begin, 1e-7))
    dist.all_reduce(count, dist.ReduceOp.MIN)  # as often on all ranks
    times = []
    for _ in range(min(MOST, max(LEAST, int(count.item())))):
        begin = time.perf_counter()
        dist.all_reduce(data)
        times.append((time.perf_counter() - begin) * 1e6)
    return times


def main() -> None:
    file, seconds, sizes = sys.argv[1], float(sys.argv[2]), [int(word) for word in sys.argv[3:]]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=ranks)
    for size in sizes:
        us = statistics.median(times_of(torch.zeros(max(1, size // 4)), seconds))
        if rank == 0:
            print(json.dumps({"case": f"cores/gloo/{size}/{ranks} ranks", "bytes": size, "us": us}), flush=True)
    dist.destroy_process_group()


main()
