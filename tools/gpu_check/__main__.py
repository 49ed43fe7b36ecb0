"""tools/gpu-check: runs the requested parts, shows the results, and writes them to gpu-NAME.json."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_check.bring import bring_bundle, bring_prebuilt
from gpu_check.machine import NoGpu, find_gpu, find_nccl, find_tool, output, toolkit_version
from gpu_check.parts import COMMANDS, MINUTES, PARTS, Check
from gpu_check.report import all_tables, summary
from gpu_check.run import LOGS, ROOT, Clock, Failed, Line, Skipped, pack_logs
from gpu_check.targets import judge


def read_options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu-check",
        description="Builds, tests and measures the GPU path on this machine's GPU, in less than nine minutes a command.",
        epilog="Exit code 0: nothing failed and no target was missed; what was skipped is said. 1: something was. 2: no GPU.",
    )
    estimates = ", ".join(f"{part} ({MINUTES[part]:g})" for part in PARTS)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them if none is named. With estimated minutes: "
        f"{estimates}. `first` and `second` are two commands that have all: {'; '.join(map(' '.join, COMMANDS.values()))}",
    )  # fmt: skip
    parser.add_argument(
        "--bundle",
        action="store_true",
        help="only copy what the build needs into build/gpu-bundle, for a machine without network",
    )
    parser.add_argument(
        "--prebuilt",
        action="store_true",
        help="only build all programs, for sm_90 and newer, into build/gpu-prebuilt: a machine that has them compiles nothing",
    )
    parser.add_argument("--name", help="of the result, gpu-NAME.json (default: the GPU's)")
    options = parser.parse_args(words)
    if unknown := [part for part in options.parts if part not in PARTS and part not in COMMANDS]:
        parser.error(f"there is no part {unknown[0]}: there are {', '.join(PARTS)}, and {' and '.join(COMMANDS)}")
    options.parts = [part for word in options.parts for part in COMMANDS.get(word, (word,))]
    return options


def run_part(name: str, check: Check, built: bool) -> Line:
    start, known = time.monotonic(), len(check.lines)
    try:
        if not built:
            raise Skipped("the build failed")
        check.part = name
        check.clock.limit(1)
        result, words = "ok", PARTS[name](check)
    except Skipped as skipped:
        result, words = "skipped", str(skipped)
    except Failed as failed:
        result, words = "FAILED", str(failed)
    except Exception as error:  # a fault of this program: the other parts have results nevertheless
        traceback.print_exc()
        result, words = "FAILED", f"gpu-check itself failed: {type(error).__name__}: {error}"
    for measured in check.lines[known:]:
        measured.setdefault("part", name)
    line = {"part": name, "result": result, "words": words, "seconds": round(time.monotonic() - start, 1)}
    print(f"{name}: {result}, {line['seconds']:.0f} s: {words}", flush=True)
    return line


def run_parts(names: Sequence[str], check: Check, keep: Callable[[list[Line]], None]) -> list[Line]:
    """The requested parts in their order; all need the build. keep: called with the results so far after each part."""
    done: list[Line] = []
    for name in PARTS:
        if name == "build" or name in names:
            built = name == "build" or done[0]["result"] == "ok" or check.has_program()
            done.append(run_part(name, check, built))
            keep(done)
    return done


def write_result(file: Path, machine: Line, parts: Sequence[Line], lines: Sequence[Line]) -> None:
    """Writes what is known. Other parts that an earlier command has checked on the same machine and commit stay."""
    parts, lines = list(parts), list(lines)
    names = {part["part"] for part in parts}
    with contextlib.suppress(OSError, ValueError):  # there is none, or it was not written to its end
        before = json.loads(file.read_text())
        if all(before["machine"].get(key) == value for key, value in machine.items() if key != "date"):
            parts += [part for part in before["parts"] if part["part"] not in names]
            lines += [line for line in before["measurements"] if line.get("part") not in names]
    parts.sort(key=lambda part: list(PARTS).index(part["part"]))
    result = {"schema": "tnt-gpu-check/1", "machine": machine, "parts": parts, "targets": judge(lines), "measurements": lines}
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(result, indent=1) + "\n")
    beside.replace(file)


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


def bring(options: argparse.Namespace) -> int:
    """Makes what comes along to another machine."""
    try:
        for wanted, make in ((options.bundle, bring_bundle), (options.prebuilt, bring_prebuilt)):
            if wanted:
                print(f"gpu-check: {make()}")
    except Failed as failed:
        print(f"gpu-check: {failed}", file=sys.stderr)
        return 1
    return 0


def main(words: Sequence[str]) -> int:
    options = read_options(words)
    if options.bundle or options.prebuilt:
        return bring(options)
    try:
        gpu = find_gpu()
    except NoGpu as reason:
        print(f"gpu-check: there is no GPU to check: {reason}", file=sys.stderr)
        return 2
    check = Check(gpu, find_nccl(), Clock())
    machine = describe(check)
    print("gpu-check: " + ", ".join(f"{key} {value}" for key, value in machine.items() if value), flush=True)
    file = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results") / f"gpu-{options.name or gpu.slug}.json"
    done: list[Line] = []

    def keep(parts: Sequence[Line] | None = None) -> None:
        """Writes what is known: after each part, and after each measurement in one."""
        if parts is not None:
            done[:] = parts
        write_result(file, machine, done, check.lines)
        if parts is not None and "OUT" in os.environ:
            pack_logs(file)

    check.keep = keep
    parts = run_parts(options.parts or list(PARTS), check, keep)
    targets = judge(check.lines)
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "tables.txt").write_text(all_tables(check.lines, targets))
    keep(parts)
    print(f"\n{summary(check.lines, parts, targets)}")
    failed = [line["part"] for line in parts if line["result"] == "FAILED"]
    missed = sum(not line["ok"] for line in targets)
    skipped = [line["part"] for line in parts if line["result"] == "skipped"]
    verdict = "FAILED" if failed or missed else "ok"
    print(f"gpu-check: {verdict}: failed: {', '.join(failed) or 'none'}; targets missed: {missed} of {len(targets)}; "
          f"skipped: {', '.join(skipped) or 'none'}; {file}")  # fmt: skip
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
