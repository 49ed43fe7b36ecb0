"""PyTorch's way to pack: _foreach_copy_ into views of a buffer. One JSON object a line; run by gpu-check where there is torch.

`foreach.py MODEL.json SECONDS`
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch

LINE = 256  # bytes; as allocators align


def rounded_up(count: int) -> int:
    return -(-count * 4 // LINE) * LINE // 4


def main() -> None:
    model = json.loads(Path(sys.argv[1]).read_text())
    seconds = float(sys.argv[2])
    counts = []
    for _, shape in model["tensors"]:
        count = 1
        for extent in shape:
            count *= extent
        counts.append(count)
    length = sum(map(rounded_up, counts))
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    copies = 1 + 4 * cache // (2 * 4 * length)
    sets = []
    for _ in range(copies):
        memory = torch.full((length,), 0.0115, device="cuda")
        bucket = torch.zeros(length, device="cuda")
        starts = [0]
        for count in counts:
            starts.append(starts[-1] + rounded_up(count))
        cut = [
            [whole[start : start + count] for start, count in zip(starts, counts, strict=False)] for whole in (memory, bucket)
        ]
        sets.append((cut[1], cut[0]))
    for name, pack in (("pack", True), ("unpack", False)):
        times: list[float] = []
        deadline = time.monotonic() + seconds
        while len(times) < 13 or time.monotonic() < deadline:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for buckets, gradients in sets:
                if pack:
                    torch._foreach_copy_(buckets, gradients)
                else:
                    torch._foreach_copy_(gradients, buckets)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / copies)
        us = statistics.median(times[2:])
        moved = 8 * sum(counts)
        case = f"foreach/{name}/{model['name']}/float32/all"
        print(json.dumps({"case": case, "bytes": moved, "us": us, "gb_per_s": moved / us * 1e-3, "torch": torch.__version__}))


main()
