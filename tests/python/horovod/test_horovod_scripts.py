"""Scripts of the habits of Horovod's users, which run unchanged: with Keras 3 and with legacy Keras."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

LEGACY = ["keras_mnist", "imagenet_resnet50"]
SCRIPTS = ["mnist_loop", "synthetic_benchmark", "keras_synthetic_benchmark", *LEGACY]


def results(*scripts, **env):
    return Findings(2, RANKS / "horovod/horovod_scripts.py", launcher_options=["--horovod"], env=env, only=scripts)


@pytest.fixture(scope="module")
def found():
    return results()


@pytest.fixture(scope="module")
def with_legacy_keras():
    return results(*LEGACY, TF_USE_LEGACY_KERAS="1")


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(found, script):
    for on_rank in found[script]:
        assert all(on_rank.values()), on_rank


@needs_tf_keras
@pytest.mark.parametrize("script", LEGACY)
def test_script_for_legacy_keras(with_legacy_keras, script):
    for on_rank in with_legacy_keras[script]:
        assert all(on_rank.values()), on_rank
