"""Without `--preload` the launcher imports TensorFlow for all ranks where a script's first lines show that it may."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tarantella.launcher.start.preload import preloadable

TENSORFLOW, ALL = ("tensorflow",), ("tensorflow", "keras", "tarantella.keras.model")


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ('"""Trains."""\nfrom __future__ import annotations\nimport os, sys\nimport tensorflow as tf', TENSORFLOW),
        ("import numpy as np\nfrom tensorflow import keras\nimport tarantella as tnt", (TENSORFLOW[0], ALL[2])),
        ("import keras\nimport horovod.tensorflow.keras as hvd\nimport pandas", ALL),
        ("import tensorflow\nimport pandas\nimport keras", TENSORFLOW),
        ("import tarantella as tnt\nimport numpy", ()),
        ("import torch\nimport tensorflow", ()),
        ("import settings_of_mine\nimport tensorflow", ()),
        ("from . import tensorflow", ()),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\nimport tensorflow", ()),
        ("if True:\n  import tensorflow", ()),
        ("import tensorflow\ndef keras_2():\n  import os\n  os.environ['TF_USE_LEGACY_KERAS'] = '1'", ()),
        ("import tensorflow as", ()),
        ("import tensorflow\n\0", ()),
        ("print('nothing')", ()),
    ],
)
def test_what_a_script_imports_first(tmp_path: Path, text: str, modules: tuple[str, ...]) -> None:
    (tmp_path / "settings_of_mine.py").touch()
    script = tmp_path / "train.py"
    script.write_text(text)
    assert preloadable(str(script)) == modules


def test_devices_of_a_plug_in_may_have_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-packages/tensorflow-plugins").mkdir(parents=True)
    script = tmp_path / "train.py"
    script.write_text("import tensorflow")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    assert preloadable(str(script)) == ()


def test_a_module_beside_the_script_is_another_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import tensorflow")
    (tmp_path / "tensorflow").mkdir()
    assert preloadable(str(script)) == ()
    assert preloadable(str(tmp_path / "none.py")) == ()


def test_ranks_are_forks_by_default(here):
    script = here.folder / "first.py"
    script.write_text(
        dedent("""
        import sys
        import tensorflow
        import tarantella as tnt
        print("-n" in open("/proc/self/cmdline").read().split(chr(0)), sys.argv)
        """)
    )
    forked = here.run("-n", 2, "--", script, "-x")
    assert forked.returncode == 0 and forked.stdout == f"True ['{script}', '-x']\n", forked.stderr
    assert "; tensorflow, tarantella.keras.model imported once for all" in forked.stderr
    alone = here.run("-n", 2, "--no-preload", "--", script)
    assert alone.stdout.startswith("False ") and "imported once" not in alone.stderr, alone.stderr
    assert "imported once" not in here.run("-n", 1, "--", script).stderr


def test_either_option_is_given(here):
    refused = here.run("-n", 2, "--preload", "json", "--no-preload", "--", "-c", "pass")
    assert refused.returncode == 2 and "--preload and --no-preload: give one of them" in refused.stderr
