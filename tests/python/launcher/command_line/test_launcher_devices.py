"""Without -n: a rank for each GPU of this node, or one."""

from __future__ import annotations

import pytest

from tarantella.launcher.command_line import options
from tarantella.launcher.command_line.devices import visible_gpus


@pytest.mark.parametrize(
    ("present", "visible", "count"),
    [(0, None, 0), (4, None, 4), (4, "0,2", 2), (4, "", 0), (4, "-1", 0), (4, "1, -1, 2", 1), (2, "0,1,2,3", 2), (0, "0", 0)],
)
def test_gpus_that_ranks_would_see(tmp_path, present, visible, count):
    for i in range(present):
        (tmp_path / f"proc/driver/nvidia/gpus/0000:0{i}:00.0").mkdir(parents=True)
        node = tmp_path / f"amd/sys/class/kfd/kfd/topology/nodes/{i + 1}"
        node.mkdir(parents=True)
        (node / "properties").write_text("cpu_cores_count 0\nsimd_count 304\nmem_banks_count 1\n")
    cpu = tmp_path / "amd/sys/class/kfd/kfd/topology/nodes/0"
    cpu.mkdir(parents=True)
    (cpu / "properties").write_text("cpu_cores_count 16\nsimd_count 0\n")
    for variable, root in (
        ("CUDA_VISIBLE_DEVICES", tmp_path),
        ("HIP_VISIBLE_DEVICES", tmp_path / "amd"),
        ("ROCR_VISIBLE_DEVICES", tmp_path / "amd"),
    ):
        environment = {} if visible is None else {variable: visible}
        assert visible_gpus(environment, root) == count
        assert visible_gpus(environment, tmp_path / "none") == 0


@pytest.mark.parametrize(("words", "gpus", "ranks"), [("", 0, 1), ("", 3, 3), ("--no-gpu", 3, 1), ("-n 2", 3, 2)])
def test_ranks_without_n(monkeypatch, tmp_path, words, gpus, ranks):
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(options, "visible_gpus", lambda: gpus)
    assert options.parse([*words.split(), "--", str(script)]).ranks == ranks
