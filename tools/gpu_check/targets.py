"""The performance targets of the GPU path on an H100 or H200, and the measured values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_check.run import Line


@dataclass(frozen=True)
class Target:
    """A limit for one value of all matching cases. The worst case counts."""

    name: str
    cases: str
    value: str
    bound: float
    unit: str
    at_least: bool = True

    def judge(self, lines: Sequence[Line]) -> Line | None:
        found = [
            (line[self.value], line["case"]) for line in lines if self.value in line and re.fullmatch(self.cases, line["case"])
        ]
        if not found:
            return None
        unknown = [entry for entry in found if math.isnan(entry[0])]  # is wrong, whatever the others are
        reached, case = unknown[0] if unknown else min(found) if self.at_least else max(found)
        ok = reached >= self.bound if self.at_least else reached <= self.bound
        words = {"target": self.name, "bound": self.bound, "at_least": self.at_least, "unit": self.unit}
        return {**words, "reached": reached, "case": case, "ok": bool(ok)}


LARGE = "(all|16MiB)"
TARGETS = (
    Target("float32 from 16 MiB, of the device's copy", rf"(un)?pack/\w+/float32/{LARGE}", "percent_of_copy", 85, "%"),
    Target("cast to bfloat16, of the device's copy", rf"(un)?pack/\w+/bfloat16/{LARGE}", "percent_of_copy", 80, "%"),
    Target("misaligned by one element, of the copy", rf"(un)?pack/\w+/misaligned/{LARGE}", "percent_of_copy", 70, "%"),
    Target("16 blocks, bytes read and written", r"(un)?pack/\w+/16_ctas/16MiB", "gb_per_s", 1000, "GB/s"),
    Target("float32 up to 1 MiB", r"(un)?pack/\w+/float32/1MiB", "us", 5, "us", at_least=False),
    Target(
        "lean kernels for a bucket and direction", r"(un)?pack/\w+/(float32|bfloat16)/.*", "launches", 1, "", at_least=False
    ),
    Target("host time of pack or unpack", r"(un)?pack/.*", "host_us", 10, "us", at_least=False),
    Target("ResNet-50 beside cudaMemcpyAsync per tensor", "pack/resnet50/float32/all", "ratio_to_memcpy_per_tensor", 5, "x"),
    Target("ResNet-50 beside _foreach_copy_", "foreach/pack/resnet50/float32/all", "ratio_to_foreach", 1.3, "x"),
    Target("host time of ready", r"reducer/\w+/1 ranks", "ready_host_us", 1, "us", at_least=False),
    Target("host time of a bucket's launch", r"reducer/\w+/1 ranks", "bucket_host_us", 10, "us", at_least=False),
    Target("host time of ready on several ranks", r"reducer/\w+/[2-9] ranks", "ready_host_us", 1, "us", at_least=False),
    Target("the same of a bucket's launch", r"reducer/\w+/[2-9] ranks", "bucket_host_us", 10, "us", at_least=False),
)


def judge(lines: Sequence[Line]) -> list[Line]:
    """The targets for which there are measurements."""
    return [judged for target in TARGETS if (judged := target.judge(lines)) is not None]


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    aligned = (
        "  ".join(
            cell.ljust(width) if column == 0 or len(row) == 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(f"  {row}".rstrip() for row in aligned)


Rows = list[tuple[str, ...]]


def target_rows(judged: Sequence[Line]) -> Rows:
    rows: Rows = [("target", "asked", "reached", "", "worst case")]
    for line in judged:
        asked = f"{'>=' if line['at_least'] else '<='} {line['bound']:g} {line['unit']}".rstrip()
        reached = f"{line['reached']:.4g} {line['unit']}".rstrip()
        rows.append((line["target"], asked, reached, "ok" if line["ok"] else "MISSED", line["case"]))
    return rows


def bucket_rows(lines: Sequence[Line]) -> Rows:
    rows: Rows = [("case", "MiB moved", "us", "GB/s", "% of copy", "x memcpy", "host us")]
    for line in lines:
        if "percent_of_copy" not in line:
            continue
        ratio = f"{line['ratio_to_memcpy_per_tensor']:.1f}" if "ratio_to_memcpy_per_tensor" in line else "-"
        numbers = (line["bytes"] / 2**20, line["us"], line["gb_per_s"], line["percent_of_copy"])
        rows.append((line["case"], *(f"{number:.1f}" for number in numbers), ratio, f"{line['host_us']:.1f}"))
    return rows


def other_rows(lines: Sequence[Line]) -> Rows:
    """The times of ranks and calls: every number of a line, by its name."""
    rows: Rows = []
    for line in lines:
        if "percent_of_copy" in line or line["case"] == "machine" or line["case"].startswith("cores/"):
            continue
        numbers = (f"{key} {value:.4g}" for key, value in line.items() if isinstance(value, (int, float)) and key != "bytes")
        rows.append((line["case"], "  ".join(numbers)))
    return rows
