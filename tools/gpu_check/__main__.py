"""tools/gpu-check: runs the requested parts, shows the results, and writes them to gpu-NAME.json."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_check.machine import NoGpu, find_gpu, find_nccl, find_tool, output, toolkit_version
from gpu_check.parts import PARTS, Check
from gpu_check.run import ROOT, Clock, Failed, Line, Skipped
from gpu_check.targets import buckets_table, judge, others_table, table, targets_table


def read_options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu-check",
        description="Builds, tests and measures the GPU path on this machine's GPU, in less than nine minutes.",
        epilog="Exit code 0: nothing failed and no target was missed; what was skipped is said. 1: something was. 2: no GPU.",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them if none is named")
    parser.add_argument("--name", help="of the result, gpu-NAME.json (default: the GPU's)")
    options = parser.parse_args(words)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: there are {', '.join(PARTS)}")
    return options


def run_part(name: str, check: Check, built: bool) -> Line:
    start = time.monotonic()
    try:
        if not built:
            raise Skipped("the build failed")
        check.clock.limit(1)
        result, words = "ok", PARTS[name](check)
    except Skipped as skipped:
        result, words = "skipped", str(skipped)
    except Failed as failed:
        result, words = "FAILED", str(failed)
    line = {"part": name, "result": result, "words": words, "seconds": round(time.monotonic() - start, 1)}
    print(f"{name}: {result}, {line['seconds']:.0f} s: {words}", flush=True)
    return line


def run_parts(names: Sequence[str], check: Check) -> list[Line]:
    """The requested parts in their order; all need the build."""
    done = [run_part("build", check, built=True)]
    built = done[0]["result"] == "ok"
    done += [run_part(name, check, built) for name in PARTS if name in names and name != "build"]
    return done


def describe(check: Check) -> Line:
    nvcc = find_tool("nvcc")
    return {
        "device": check.gpu.name,
        "architecture": f"sm_{check.gpu.architecture}",
        "driver": check.gpu.driver,
        "driver_cuda": check.gpu.driver_cuda,
        "toolkit": toolkit_version(nvcc) if nvcc else None,
        "nccl": check.nccl.text if check.nccl else None,
        "commit": output("git", "-C", str(ROOT), "describe", "--always", "--dirty").strip() or None,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def show(check: Check, parts: Sequence[Line], targets: Sequence[Line]) -> None:
    if buckets := buckets_table(check.lines):
        print(f"\nBuckets: times on the device, bytes read and written\n{buckets}")
    if others := others_table(check.lines):
        print(f"\nCalls and ranks\n{others}")
    if targets:
        print(f"\nTargets (of an H100 or H200)\n{targets_table(targets)}")
    rows = [("part", "result", "seconds"), *((line["part"], line["result"], f"{line['seconds']:.0f}") for line in parts)]
    print(f"\nSummary\n{table(rows)}")


def main(words: Sequence[str]) -> int:
    options = read_options(words)
    try:
        gpu = find_gpu()
    except NoGpu as reason:
        print(f"gpu-check: there is no GPU to check: {reason}", file=sys.stderr)
        return 2
    check = Check(gpu, find_nccl(), Clock())
    machine = describe(check)
    print("gpu-check: " + ", ".join(f"{key} {value}" for key, value in machine.items() if value), flush=True)
    parts = run_parts(options.parts or list(PARTS), check)
    targets = judge(check.lines)
    show(check, parts, targets)
    file = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results") / f"gpu-{options.name or gpu.slug}.json"
    result = {"schema": "tnt-gpu-check/1", "machine": machine, "parts": parts, "targets": targets, "measurements": check.lines}
    file.write_text(json.dumps(result, indent=1) + "\n")
    failed = [line["part"] for line in parts if line["result"] == "FAILED"]
    missed = sum(not line["ok"] for line in targets)
    skipped = [line["part"] for line in parts if line["result"] == "skipped"]
    verdict = "FAILED" if failed or missed else "ok"
    print(f"gpu-check: {verdict}: failed: {', '.join(failed) or 'none'}; targets missed: {missed} of {len(targets)}; "
          f"skipped: {', '.join(skipped) or 'none'}; {file}")  # fmt: skip
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
