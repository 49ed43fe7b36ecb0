"""Loss scaling on several ranks: all take the same branch, as one device would, and clip what was reduced."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2
SCALES = [2.0**15, 2.0**15, 2.0**14, 2.0**14, 2.0**14]


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/step/mixed_precision.py", env={"TNT_TIMEOUT": "60"})


@pytest.mark.parametrize("name", ["plain", "clipnorm", "global_clipnorm", "clipvalue", "accumulation"])
def test_an_overflow_on_one_rank_is_left_out_on_all(found, name):
    on_ranks = [on_rank[name] for on_rank in found["overflow_in_fit"]]
    ours, alone = (np.array(steps) for steps in on_ranks[0])
    assert ours[:, 0].tolist() == SCALES
    steps = [0, 1, 1, 1, 2] if name == "accumulation" else [1, 2, 2, 3, 4]
    assert ours[:, 1].tolist() == steps
    assert ours[2, 2:].tolist() == ours[1, 2:].tolist(), "the step that overflowed changed weights"
    assert ours[4, 2:].tolist() != ours[1, 2:].tolist(), "no later step changed weights"
    assert all(on_rank[0] == on_ranks[0][0] for on_rank in on_ranks), "ranks differ"
    np.testing.assert_allclose(ours, alone, atol=2e-3)  # the last bits of float16 are lost at other places


@pytest.mark.parametrize(("place", "scales"), [(0, [2.0**15] * 5), (1, SCALES)], ids=["of a sample", "of the batch"])
def test_the_scale_is_that_of_one_device(found, place, scales):
    for on_rank in found["large_gradients"]:
        ours, alone = (np.array(steps) for steps in on_rank[place])
        assert ours[:, 0].tolist() == alone[:, 0].tolist() == scales
        np.testing.assert_allclose(ours, alone, atol=2e-3)


def test_an_overflow_in_a_loop(found):
    steps = np.array(found["overflow_in_a_loop"][0])
    assert steps[:, 0].tolist() == SCALES
    assert steps[:, 1].tolist() == [1, 2, 2, 3, 4]
    assert steps[2, 2:].tolist() == steps[1, 2:].tolist()
    assert found["overflow_in_a_loop"][1] == found["overflow_in_a_loop"][0]


def test_accumulated_gradients_are_reduced_once(found):
    for stats in found["accumulating_fit"]:
        assert stats["steps"] == 3
        assert stats["bytes"] == 3 * 4 * 5
