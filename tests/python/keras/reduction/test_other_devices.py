"""Devices of a plug-in of TensorFlow: each rank has its own, and gradients travel through host memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SOURCES = Path(__file__).resolve().parents[3] / "fake_device"


@pytest.fixture(scope="module")
def plug_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake device, compiled for the TensorFlow that is installed, where TensorFlow looks for plug-ins."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("plug-in") / "site-packages/tensorflow-plugins"
    folder.mkdir(parents=True)
    ccache = [found] if (found := shutil.which("ccache")) else []
    objects = []
    for source in sorted(SOURCES.glob("*.cpp")):
        objects.append(folder.parent / f"{source.stem}.o")
        flags = ["-std=c++20", "-O1", "-fPIC", "-isystem", tf.sysconfig.get_include(), *tf.sysconfig.get_compile_flags()]
        flags = [flag for flag in flags if not flag.startswith(("--std", "-std=c++17"))]
        subprocess.run([*ccache, "g++", *flags, "-c", source, "-o", objects[-1]], check=True, timeout=600)
    library = folder / "libfake_device.so"
    link = ["g++", "-shared", *objects, "-o", library, *tf.sysconfig.get_link_flags(), "-pthread"]
    subprocess.run(link, check=True, timeout=120)
    return library


def checked(plug_in: Path, *only: str, **variables: str) -> Findings:
    path = os.pathsep.join([str(RANKS), str(plug_in.parents[1])])
    environment = {"PYTHONPATH": path, "FAKE_DEVICE": str(plug_in), "TNT_LOG_LEVEL": "INFO", **variables}
    return Findings(2, RANKS / "keras/reduction/other_devices.py", env=environment, forked=False, only=only)


@pytest.fixture(scope="module")
def found(plug_in: Path) -> Findings:
    return checked(plug_in, "devices", "trained", "copies_begin_in_backward", "reduced_under_hard_placement")


def test_each_rank_has_its_own(found: Findings) -> None:
    assert found["devices"] == [
        [f"/physical_device:TNTFAKE:{rank}", "/job:localhost/replica:0/task:0/device:TNTFAKE:0"] for rank in range(2)
    ]


def test_training_is_that_of_one_cpu(found: Findings) -> None:
    for outcome in found["trained"]:
        np.testing.assert_allclose(outcome["found"], outcome["serial"], rtol=1e-5)
        assert outcome["copies"] > 8 * 4  # at least each gradient of each step
    said = found["trained"][0]["messages"]
    assert "gradients travel through host memory, as Tarantella has no kernels for devices of type TNTFAKE" in said
    assert not [message for message in said if "jit_compile" in message], said


def test_copies_to_the_host_begin_while_backward_runs(found: Findings) -> None:
    """The device holds the last kernel of backward until the first gradient's copy begins: three steps, each in that order."""
    assert found["copies_begin_in_backward"] == [[3, 0]] * 2


def test_sums_under_hard_placement(found: Findings) -> None:
    assert found["reduced_under_hard_placement"] == [[[6.0, 6.0]] * 2] * 2


def test_more_ranks_than_devices(plug_in: Path) -> None:
    said = [
        "InvalidArgumentError",
        "this node has 2 ranks and 1 TNTFAKE: start at most 1 on it, let ranks share by TNT_GPUS_PER_NODE=1, or train on CPUs "
        "(--no-gpu)",
    ]
    first, second = checked(plug_in, "trained_if_asked", FAKE_DEVICES="1")["trained_if_asked"]
    assert first == second and first[0] == said and len(first[1]) == 3
