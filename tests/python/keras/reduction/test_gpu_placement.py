"""Which GPU a rank gets, and where its gradients are reduced, with made-up GPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tarantella as tnt
from support.findings import Findings
from support.launch import RANKS, run_alone
from tarantella import gpus, vendors


@pytest.fixture(scope="module")
def found() -> Findings:
    return Findings(2, RANKS / "keras/reduction/gpu_placement.py")


def test_nothing_changes_without_gpus(found: Findings) -> None:
    assert found["without_gpus"] == [[-1, ""]] * 2


def test_ops_have_kernels_for_both(found: Findings) -> None:
    expected = [["TntFinish", "CPU", []], ["TntFinish", "GPU", []], ["TntStart", "CPU", []], ["TntStart", "GPU", ["scale"]]]
    assert found["kernels_are_registered"] == [expected] * 2


def test_why_a_rank_cannot_reduce_on_its_gpu(found: Findings) -> None:
    other = "TensorFlow uses CUDA device 1, and this process can use 1 of them"
    no_kernel = "no kernel image for CUDA device 1"
    assert found["why_not"] == [["no driver", other, no_kernel, "no compiler", ""]] * 2
    said = found["a_device_that_is_not_there"]
    assert all("device 1000" in text for text in said), said


def test_the_scale_is_computed_where_it_is_read(found: Findings) -> None:
    assert found["the_scale_is_computed_where_it_is_read"] == [["Cast /device:CPU:0", "RealDiv /device:CPU:0"]] * 2


def test_ranks_decide_alike(found: Findings) -> None:
    said = "gradients travel through host memory, which is slow: {}".format
    first, second = found["ranks_decide_alike"]
    assert first == [0, -1, said("another rank cannot reduce on its GPU")]
    assert second == [1, -1, said("no compiler")]


def test_a_rank_may_have_no_gpu(found: Findings) -> None:
    said = "gradients travel through host memory, which is slow: {}".format
    total = [1.5, 3.0]
    expected = [[-1, [said(reason)], total] for reason in ("1 of 2 ranks have no GPU", "this rank has no GPU")]
    assert found["a_rank_may_have_no_gpu"] == expected


def test_a_hook_is_called_on_the_host(found: Findings) -> None:
    assert found["a_hook_is_called_on_the_host"] == [[0, -1, 0], [1, -1, 1]]


def test_an_elastic_job_asks_no_other_rank(found: Findings) -> None:
    assert found["an_elastic_job_asks_no_other_rank"] == [[-1, True], [None, True]]


def test_ops_run_where_gradients_lie(found: Findings) -> None:
    placed = [[f"{op} /device:{device}:0" for op in ("TntFinish", "TntStart")] for device in ("CPU", "GPU")]
    assert found["ops_run_where_gradients_lie"] == [placed] * 2


def test_the_host_reduces_what_a_gpu_cannot(found: Findings) -> None:
    assert found["the_host_reduces_what_a_gpu_cannot"] == [[-1, [1.5, 3.0, 4.5]]] * 2


class Config:
    """TensorFlow's, with so many GPUs, or devices of another type."""

    def __init__(self, gpus: int, chosen: list[int] | None = None, computed: bool = False, kind: str = "GPU") -> None:
        self.kind = kind
        self.gpus = [f"{kind}:{i}" for i in range(gpus)]
        self.visible: Any = self.gpus if chosen is None else [self.gpus[i] for i in chosen]
        self.computed = computed
        self.growing: list[str] = []
        self.experimental = self

    def list_physical_devices(self, kind: str | None = None) -> Any:
        if kind is None:
            return [SimpleNamespace(device_type=name) for name in ("CPU", "TPU_SYSTEM", *[self.kind] * len(self.gpus))]
        return list(self.gpus) if kind == self.kind else []

    def get_visible_devices(self, kind: str | None = None) -> Any:
        return self.visible if kind else [SimpleNamespace(device_type=self.kind) for _ in self.visible]

    def set_visible_devices(self, devices: Any, _: str) -> None:
        if self.computed:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        self.visible = devices

    def set_memory_growth(self, device: str, _: bool) -> None:
        if self.computed:
            raise RuntimeError("Physical devices cannot be modified after being initialized")
        self.growing.append(device)


def choose(monkeypatch: pytest.MonkeyPatch, config: Config, **variables: str) -> Config:
    """Lets a rank with these variables choose."""
    for name in ("TNT_LOCAL_RANK", "TNT_LOCAL_SIZE", "TNT_GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    gpus.choose(SimpleNamespace(config=config))  # type: ignore[arg-type]
    return config


@pytest.mark.parametrize(
    ("rank", "size", "per_node", "config", "visible"),
    [
        ("0", "4", "", Config(4), ["GPU:0"]),
        ("1", "4", "", Config(4), ["GPU:1"]),
        ("1", "2", "", Config(2), ["GPU:1"]),  # of those that CUDA_VISIBLE_DEVICES leaves
        ("1", "4", "", Config(1, chosen=[0]), ["GPU:0"]),
        ("1", "4", "", Config(0), []),
        ("1", "4", "", Config(4, chosen=[3]), ["GPU:3"]),
        ("", "", "", Config(2), ["GPU:0", "GPU:1"]),
        ("1", "2", "2", Config(4), ["GPU:1"]),
        ("3", "4", "4", Config(4), ["GPU:3"]),
        ("0", "2", "0", Config(4), []),
        ("1", "2", "-1", Config(4), []),
        ("", "", "0", Config(4), []),
        ("", "", "3", Config(4), ["GPU:0", "GPU:1", "GPU:2"]),
        ("0", "2", "0", Config(0), []),
    ],
)
def test_every_rank_of_a_node_has_its_gpu(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str, per_node: str, config: Config, visible: Any
) -> None:
    found = choose(monkeypatch, config, TNT_LOCAL_RANK=rank, TNT_LOCAL_SIZE=size, TNT_GPUS_PER_NODE=per_node)
    assert found.visible == visible
    chosen = visible == ["GPU:3"] and config.gpus != visible and per_node == ""  # by the script
    assert found.growing == (visible if rank and not chosen else [])


def test_devices_of_a_plug_in_are_chosen_as_gpus_are(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"TNT_LOCAL_RANK": "1", "TNT_LOCAL_SIZE": "2"}
    found = choose(monkeypatch, Config(2, kind="XPU"), **place)
    assert (found.visible, found.growing) == (["XPU:1"], [])
    assert choose(monkeypatch, Config(4, kind="XPU"), TNT_GPUS_PER_NODE="1", **place).visible == ["XPU:0"]
    with pytest.raises(tnt.InvalidArgumentError, match="TensorFlow has used XPUs before this rank could choose"):
        choose(monkeypatch, Config(2, kind="XPU", computed=True), **place)


TOO_FEW = "this node has 4 ranks and {}: start at most {} on it, let ranks share by TNT_GPUS_PER_NODE={}, or train on CPUs"


@pytest.mark.parametrize(
    ("config", "variables", "most"),
    [
        (Config(2), {}, "2"),
        (Config(1), {}, "1"),
        (Config(3, kind="XPU"), {}, "3"),
        (Config(2), {"CUDA_VISIBLE_DEVICES": "0,1"}, "2"),  # as Slurm sets it, for all ranks of a node
        (Config(4), {}, ""),
        (Config(0), {}, ""),
        (Config(2), {"TNT_GPUS_PER_NODE": "2"}, ""),
        (Config(2), {"TNT_GPUS_PER_NODE": "0"}, ""),
        (Config(2, chosen=[0]), {}, ""),  # by the script
        (Config(2, chosen=[]), {}, ""),  # hidden by the script
        (Config(1), {"CUDA_VISIBLE_DEVICES": "3"}, ""),  # which another program may have set for this rank
        (Config(1), {"HIP_VISIBLE_DEVICES": "3"}, ""),
        (Config(1, kind="XPU"), {"ZE_AFFINITY_MASK": "0.1"}, ""),
        (Config(1, kind="XPU"), {"CUDA_VISIBLE_DEVICES": "-1"}, "1"),
    ],
)
def test_more_ranks_than_devices(monkeypatch: pytest.MonkeyPatch, config: Config, variables: dict[str, str], most: str) -> None:
    for name in (*vendors.showing("GPU"), *vendors.showing("XPU")):
        monkeypatch.delenv(name, raising=False)
    choose(monkeypatch, config, TNT_LOCAL_RANK="3", TNT_LOCAL_SIZE="4", **variables)
    said = gpus.shortage(SimpleNamespace(config=config))  # type: ignore[arg-type]
    found = f"{most} {config.kind}{'s' * (most != '1')}"
    assert said == (f"{TOO_FEW.format(found, most, most)} (--no-gpu)" if most else "")


def test_the_user_may_say_how_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert choose(monkeypatch, Config(2), TNT_LOCAL_RANK="1", TNT_LOCAL_SIZE="2").growing == []


def test_a_ranks_own_gpu_may_have_been_used_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be chosen: its memory stays as TensorFlow has it."""
    place = {"TNT_LOCAL_RANK": "0", "TNT_LOCAL_SIZE": "1"}
    assert choose(monkeypatch, Config(1, computed=True), **place).visible == ["GPU:0"]


@pytest.mark.parametrize(
    "place",
    [
        {"TNT_LOCAL_RANK": "3", "TNT_LOCAL_SIZE": "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
        {"SLURM_LOCALID": "3", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"},
    ],
)
def test_ranks_that_share_a_gpu_leave_each_other_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: dict[str, str]
) -> None:
    monkeypatch.setattr(gpus.logger, "propagate", True)
    config = choose(monkeypatch, Config(4), TNT_GPUS_PER_NODE="2", **place)
    assert config.visible == config.growing == ["GPU:1"]
    assert "this node has more ranks than its 2 GPUs: rank 3 of it shares one with rank 1" in caplog.text


def test_one_gpu_that_slurm_shows_may_be_the_ranks_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpus.logger, "propagate", True)
    place = {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2", "PMI_SIZE": "2"}
    config = choose(monkeypatch, Config(1), **place)
    assert config.growing == ["GPU:0"]  # which does no harm if it is
    assert caplog.text == ""


def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tnt.InvalidArgumentError, match="TNT_GPUS_PER_NODE=4: this process sees 2: leave it unset"):
        choose(monkeypatch, Config(2), TNT_GPUS_PER_NODE="4")


def test_a_script_that_has_computed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tnt.InvalidArgumentError, match="import tarantella before anything is computed"):
        choose(monkeypatch, Config(2, computed=True), TNT_LOCAL_RANK="1", TNT_LOCAL_SIZE="2")


ASK = """
import tarantella, tensorflow as tf
print(tf.config.get_visible_devices("GPU"), tf.config.get_visible_devices("CPU") != [])
"""


def test_no_gpus_for_tensorflow() -> None:
    """In one process and in a rank; that this machine has none cannot be told apart here."""
    assert run_alone(ASK, env={"TNT_GPUS_PER_NODE": "0"}).good().stdout == "[] True\n"
    refused = run_alone(ASK, env={"TNT_GPUS_PER_NODE": "9"})
    assert refused.code == 1
    assert refused.stderr.splitlines()[-1].endswith("TNT_GPUS_PER_NODE=9: this process sees 0: leave it unset for all of them")
    assert "TNT_GPUS_PER_NODE=two" in run_alone("import tarantella", env={"TNT_GPUS_PER_NODE": "two"}).stderr
