"""Which GPU a rank gets, and where its gradients are reduced, with made-up GPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.findings import Findings
from support.launch import RANKS
from tarantella import gpus


@pytest.fixture(scope="module")
def found() -> Findings:
    return Findings(2, RANKS / "gpu_placement.py")


def test_nothing_changes_without_gpus(found: Findings) -> None:
    assert found["without_gpus"] == [[-1, ""]] * 2


def test_ops_have_kernels_for_both(found: Findings) -> None:
    expected = [["TntFinish", "CPU", []], ["TntFinish", "GPU", []], ["TntStart", "CPU", []], ["TntStart", "GPU", ["scale"]]]
    assert found["kernels_are_registered"] == [expected] * 2


def test_why_a_rank_cannot_reduce_on_its_gpu(found: Findings) -> None:
    other = "TensorFlow uses CUDA device 1, and this process can use 1 of them"
    assert found["why_not"] == [["no driver", other, "no compiler", ""]] * 2


def test_ranks_decide_alike(found: Findings) -> None:
    said = "gradients travel through host memory, which is slow: {}".format
    first, second = found["ranks_decide_alike"]
    assert first == [0, -1, said("another rank cannot reduce on its GPU")]
    assert second == [1, -1, said("no compiler")]


def test_ops_run_where_gradients_lie(found: Findings) -> None:
    placed = [[f"{op} /device:{device}:0" for op in ("TntFinish", "TntStart")] for device in ("CPU", "GPU")]
    assert found["ops_run_where_gradients_lie"] == [placed] * 2


def test_the_host_reduces_what_a_gpu_cannot(found: Findings) -> None:
    assert found["the_host_reduces_what_a_gpu_cannot"] == [[-1, [1.5, 3.0, 4.5]]] * 2


class Config:
    """TensorFlow's, with so many GPUs."""

    def __init__(self, gpus: int, chosen: list[int] | None = None) -> None:
        self.gpus = [f"GPU:{i}" for i in range(gpus)]
        self.visible: Any = self.gpus if chosen is None else [self.gpus[i] for i in chosen]

    def list_physical_devices(self, _: str) -> list[str]:
        return list(self.gpus)

    def get_visible_devices(self, _: str) -> Any:
        return self.visible

    def set_visible_devices(self, devices: Any, _: str) -> None:
        self.visible = devices


@pytest.mark.parametrize(
    ("local_rank", "config", "visible"),
    [
        ("1", Config(4), "GPU:1"),
        ("5", Config(4), "GPU:1"),
        ("1", Config(1), ["GPU:0"]),
        ("1", Config(0), []),
        ("1", Config(4, chosen=[3]), ["GPU:3"]),
        ("", Config(2), ["GPU:0", "GPU:1"]),
    ],
)
def test_every_rank_of_a_node_has_its_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, local_rank: str, config: Config, visible: Any
) -> None:
    monkeypatch.setattr(gpus.logger, "propagate", True)
    monkeypatch.setenv("TNT_LOCAL_RANK", local_rank)
    gpus.choose(SimpleNamespace(config=config))  # type: ignore[arg-type]
    assert config.visible == visible
    shared = "this node has 4 GPUs and more ranks than that: ranks 1 and 5 of it share one"
    assert (shared in caplog.text) == (local_rank == "5")
