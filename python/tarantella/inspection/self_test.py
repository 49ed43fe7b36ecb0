"""A job of two ranks that `tarantella doctor` starts: a sum that must be right, and how fast sums of 16 MiB are.

Rank 0 prints `{"transport": ..., "bytes_per_second": ...}`.
"""

import json
import time
from collections.abc import Sequence

import numpy as np

from tarantella import reduction, runtime

COUNT = 4 << 20
SUMS = 10


def main(_words: Sequence[str] = ()) -> None:
    """Raises RuntimeError if a sum is wrong."""
    rank, size = runtime.world().rank, runtime.world().size
    data = np.full(COUNT, rank + 1, np.float32)
    total = reduction.all_reduce(data)
    if not np.all(total == size * (size + 1) / 2):
        raise RuntimeError(f"a sum over {size} ranks is wrong")
    seconds = []
    for _ in range(SUMS):
        runtime.world().barrier()
        begin = time.perf_counter()
        reduction.all_reduce(data, out=total)
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        rate = data.nbytes * 2 * (size - 1) / size / sorted(seconds)[SUMS // 2]
        print(json.dumps({"transport": runtime.world().transport, "bytes_per_second": rate}))
