"""`tarantella doctor`: what it finds here and on hosts, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
from importlib import metadata

import pytest

from tarantella.inspection import checks
from tarantella.inspection.checks import NOTE, OK, PROBLEM
from tarantella.inspection.doctor import answers_in

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")


def found_by(result):
    return {one["subject"]: one for one in json.loads(result.stdout)["findings"]}


def test_a_machine_where_training_works(here):
    result = here.run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert lines[-1] == "Training works here." and not any(line.startswith("FAIL") for line in lines)
    assert any(line.split()[:3] == ["ok", "tensorflow", metadata.version("tensorflow-cpu")] for line in lines), result.stdout
    assert any("2 ranks, shared memory" in line and "sums are right" in line and " GB/s over shm" in line for line in lines)


def test_a_setting_that_is_none_is_a_problem(here):
    result = here.run("doctor", "--json", env={**os.environ, "TNT_TIMOUT": "3"})
    assert result.returncode == 1
    found = found_by(result)
    assert found["settings"]["state"] == PROBLEM and "TNT_TIMOUT" in found["settings"]["text"]
    assert found["2 ranks, shared memory"]["state"] == PROBLEM and "TNT_TIMOUT" in found["2 ranks, shared memory"]["text"]


@needs_mpirun
def test_hosts_are_asked_by_mpirun(here):
    result = here.run("doctor", "--hosts", "localhost,127.0.0.1", "--mpirun", "mpirun --oversubscribe")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "2 hosts are alike, and training works on each of them."


def test_answers_are_found_however_mpirun_joins_their_lines():
    one, two = answer("a", 1.0, MPI="4.1"), answer("b", 2.0, MPI='has {"host"')
    for text in ("{}{}\n\n", "{}\r\n{}\r\n", "a warning {}\nanother\n{}", '{{"host": "c", "ti{}{}'):
        assert list(answers_in(text.format(json.dumps(one), json.dumps(two)))) == [one, two], text


def fake_mpirun(here, answers):
    lines = "\n".join(json.dumps(answer) for answer in answers)
    program = here.folder / "mpirun"
    program.write_text(f"#!/bin/sh\n[ \"$1\" != --version ] || {{ echo Open MPI; exit; }}\ncat <<'END'\n{lines}\nEND\n")
    program.chmod(0o755)
    return program


def answer(host, time, **texts):
    return {
        "host": host,
        "time": time,
        "findings": [{"subject": name, "state": OK, "text": text, "remedy": ""} for name, text in texts.items()],
    }


def test_hosts_that_differ_are_named(here):
    bad = {"subject": "memory", "state": PROBLEM, "text": "0.1 GiB available", "remedy": "end other programs"}
    answers = [answer("a", 100.0, keras="3.15.1"), answer("b", 101.0, keras="3.10.0"), answer("c", 190.0, keras="3.15.1")]
    answers[2]["findings"].append(bad)
    result = here.run("doctor", "--hosts", "a,b,c", "--mpirun", fake_mpirun(here, answers))
    assert result.returncode == 1
    assert result.stdout.splitlines()[3:] == [
        "FAIL  c: memory: 0.1 GiB available -> end other programs",
        "FAIL  keras: a has 3.15.1, and b has 3.10.0",
        "FAIL  clocks: they differ by 90 s -> run an NTP client on all hosts",
    ]


def test_a_host_that_does_not_answer(here):
    result = here.run("doctor", "--hosts", "a,b", "--mpirun", fake_mpirun(here, [answer("a", 1.0)]))
    assert result.returncode == 2 and result.stderr.startswith("tarantella: 1 of 2 hosts have answered; "), result.stderr


@pytest.mark.parametrize(
    ("version", "state"), [("2.15.1", PROBLEM), ("2.16.0", OK), ("2.21.9", OK), ("2.22.0rc1", NOTE), (None, PROBLEM)]
)
def test_versions(monkeypatch: pytest.MonkeyPatch, version: str | None, state: str):
    monkeypatch.setattr(checks, "_version_of", lambda name: version if name.startswith("tensorflow") else "3.10.0")
    found = {one.subject: one for one in checks._packages()}["tensorflow"]
    assert found.state == state and bool(found.remedy) == (state == PROBLEM)


def machine(root, nvidia=0, amd=0, intel=0):
    """A tree of /proc and /sys with so many GPUs; AMD's has a node for the CPU, Intel's one of another vendor beside it."""
    for i in range(nvidia):
        (root / f"proc/driver/nvidia/gpus/0000:0{i}:00.0").mkdir(parents=True)
    for i in range(amd and amd + 1):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{i}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count {16 * (i == 0)}\nsimd_count {304 * (i > 0)}\n")
    for i in range(intel and intel + 1):
        device = root / f"sys/class/drm/renderD{128 + i}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n" if i == 0 else "0x8086\n")
    return root


ROCM, INTEL = "tensorflow-rocm", "intel-extension-for-tensorflow"


@pytest.mark.parametrize(
    ("gpus", "packages", "shown", "said"),
    [
        ({}, [], None, []),
        ({"nvidia": 2}, [], None, []),
        ({"amd": 2}, [ROCM], {"CPU": 1, "GPU": 2}, ["AMD ok: 2 GPUs, GPU in TensorFlow: gradients travel through host memory"]),
        ({"amd": 1}, [], None, [f"AMD note: 1 GPU, and no {ROCM} is installed: TensorFlow does not compute on them"]),
        ({}, [ROCM], {"CPU": 1}, [f"AMD note: {ROCM} is installed, and no driver with a GPU: training computes on CPUs"]),
        ({"amd": 2}, [ROCM], {"CPU": 1}, ["AMD note: 2 GPUs, and TensorFlow shows no GPU: training computes on CPUs"]),
        ({"amd": 2}, [ROCM], {}, ["AMD note: 2 GPUs, and TensorFlow shows no GPU: training computes on CPUs"]),
        ({"intel": 1}, [], None, [f"Intel note: 1 GPU, and no {INTEL} is installed: TensorFlow does not compute on them"]),
        ({"intel": 1}, [INTEL], {"XPU": 1}, ["Intel ok: 1 GPU, XPU in TensorFlow: gradients travel through host memory"]),
        ({"intel": 1}, [INTEL], {"CPU": 1}, ["Intel note: 1 GPU, and TensorFlow shows no XPU: training computes on CPUs"]),
        (
            {"nvidia": 1, "amd": 2},
            [],
            None,
            [
                f"AMD note: 2 GPUs, and no {ROCM} is installed: TensorFlow does not compute on them",
                "vendors note: GPUs of NVIDIA (1) and of AMD (2): TensorFlow computes on those of one vendor",
            ],
        ),
    ],
)
def test_devices_of_other_vendors(monkeypatch: pytest.MonkeyPatch, tmp_path, gpus, packages, shown, said):
    monkeypatch.setattr(checks, "_version_of", lambda name: "2.19" if name in packages else None)
    monkeypatch.setattr(checks, "_folder", lambda: tmp_path)
    monkeypatch.setattr(checks, "_devices_of_tensorflow", lambda: shown)  # None: must not be asked
    found = list(checks._other_devices(machine(tmp_path, **gpus)))
    assert [f"{one.subject} {one.state}: {one.text}" for one in found] == said


def test_amds_gpus_reduce_themselves_where_their_plug_in_is(monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "libtarantella_hip.so").touch()
    monkeypatch.setattr(checks, "_version_of", lambda name: "2.19" if name == ROCM else None)
    monkeypatch.setattr(checks, "_folder", lambda: tmp_path)
    monkeypatch.setattr(checks, "_devices_of_tensorflow", lambda: {"CPU": 1, "GPU": 2})
    (found,) = checks._other_devices(machine(tmp_path, amd=2))
    assert found.text == "2 GPUs, GPU in TensorFlow: gradients are reduced on them, if there is RCCL"


@pytest.mark.parametrize(("shown", "state", "said"), [({"CPU": 1, "NPU": 2}, OK, "2 NPU"), ({"CPU": 1}, NOTE, "no device")])
def test_plug_ins_of_tensorflow(monkeypatch: pytest.MonkeyPatch, tmp_path, shown, state, said):
    (tmp_path / "tensorflow-plugins").mkdir()
    (tmp_path / "tensorflow-plugins/libnpu.so").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(checks, "_devices_of_tensorflow", lambda: shown)
    (found,) = checks._other_devices(machine(tmp_path))
    assert (found.subject, found.state, found.text) == ("plug-ins", state, f"libnpu.so: TensorFlow shows {said}")


def test_tensorflow_is_asked_for_its_devices(monkeypatch: pytest.MonkeyPatch):
    assert checks._devices_of_tensorflow()["CPU"] == 1
    monkeypatch.setattr(checks.sys, "executable", "/bin/false")
    assert checks._devices_of_tensorflow() == {}
