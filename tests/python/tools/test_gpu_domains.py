"""One level of ranks beside two, as gpu-check measures it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.checkouts import TOOLS

WRONG = json.dumps({"collective": "all_reduce", "bytes": 4, "time_us_p50": 1.0, "check": "3 wrong"})


def test_one_level_beside_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the tnt-bench of the package, on two ranks; then without enough cores, and with a wrong sum."""
    monkeypatch.syspath_prepend(TOOLS)
    domains = importlib.import_module("gpu_check.domains")
    run = importlib.import_module("gpu_check.run")
    monkeypatch.setattr(run, "LOGS", tmp_path)
    program = Path(sys.executable).with_name("tnt-bench")
    for name, value in (("SECONDS", 0.01), ("LAYOUTS", {2: (1, 2)}), ("CALLS", (("barrier",), ("all_reduce", "--sizes", "4")))):
        monkeypatch.setattr(domains, name, value)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("one core")
    monkeypatch.setattr(domains.os, "sched_getaffinity", lambda _: set(cores))
    lines: list[Any] = []
    assert domains.check_domains(program, run.Clock(), lines.extend) == "2 ranks on 2 cores"
    calls = [line["case"] for line in lines]
    assert sorted(calls) == [f"domains/{call}/2 ranks/{each}" for call in ("all_reduce/4", "barrier/0") for each in (1, 2)]
    assert all(line["us"] > 0 and line["ratio_to_one_level"] > 0 for line in lines)
    assert {line["ratio_to_one_level"] for line in lines if line["case"].endswith("/1")} == {1.0}
    monkeypatch.setattr(domains, "LAYOUTS", {8: (1, 4)})
    with pytest.raises(run.Skipped, match="2 cores, and 8 ranks need one each"):
        domains.check_domains(program, run.Clock(), lines.extend)
    monkeypatch.setattr(domains, "LAYOUTS", {2: (1,)})
    monkeypatch.setattr(domains, "job", lambda *_: WRONG)
    with pytest.raises(run.Failed, match="barrier of 4 bytes on 2 ranks, 1 to a domain: 3 wrong"):
        domains.check_domains(program, run.Clock(), lines.extend)
