"""The versions of TensorFlow and Keras: pyproject.toml has them, older ones are refused by name, newer ones get a warning."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from tarantella import versions
from tarantella.errors import UnsupportedError

PROMISED = {"tensorflow": ((2, 16), (2, 22)), "keras": ((3, 2), (3, 16)), "tf_keras": ((2, 16), (2, 22))}


@pytest.mark.parametrize("package", PROMISED)
def test_the_range_is_that_of_the_package(package):
    found = versions.supported(package)
    assert (found.first, found.end) == PROMISED[package]


@pytest.mark.parametrize("requirement", ["keras>=3.2,<3.16", "keras<3.16,>=3.2; extra == 'cpu'", "keras (<3.16,>=3.2)"])
def test_however_metadata_is_written(monkeypatch, requirement):
    monkeypatch.setattr(versions.metadata, "requires", lambda name: ["numpy>=1.24", requirement])
    assert str(versions.supported.__wrapped__("keras")) == "3.2 or newer, before 3.16"


def test_metadata_without_it(monkeypatch):
    monkeypatch.setattr(versions.metadata, "requires", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"says nothing of Keras: install the package again"):
        versions.supported.__wrapped__("keras")


def test_a_newer_one_gets_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "TNT_LIB"):
        versions.check("tensorflow", "2.22.0-rc0")
        versions.check("tensorflow", "2.22.0-rc0")
    text = "TensorFlow 2.22.0-rc0 was never tried with this version of Tarantella, which was with 2.16 or newer, before 2.22"
    assert [record.getMessage() for record in caplog.records] == [text]


@pytest.mark.parametrize("version", ["2.16.1", "2.21.0"])
def test_a_promised_one_is_silent(caplog, version):
    versions.check("tensorflow", version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["2.16.0", "2.18.0", "2.19.0"])
@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
def test_a_legacy_keras_that_is_too_old_for_python(monkeypatch, version, python):
    monkeypatch.setattr(versions.sys, "version_info", python)
    if python == (3, 11) or version == "2.19.0":
        versions.check.__wrapped__("tf_keras", version)
        return
    message = rf"tf_keras {version} does not work on Python 3\.{python[1]}: install tf_keras and TensorFlow 2\.19 or newer, or"
    with pytest.raises(UnsupportedError, match=message):
        versions.check.__wrapped__("tf_keras", version)


def test_an_old_tensorflow_is_refused_at_import(tmp_path):
    (tmp_path / "tensorflow.py").write_text('__version__ = "2.15.1"\n')
    run = subprocess.run(
        [sys.executable, "-c", "import tarantella as tnt; tnt.Model"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    message = (
        "TensorFlow 2.15.1 is too old for this version of Tarantella, which works with 2.16 or newer, before 2.22: "
        "pip install 'tensorflow>=2.16,<2.22'"
    )
    assert run.stderr.splitlines()[-1] == f"tarantella.errors.UnsupportedError: {message}", run.stderr
