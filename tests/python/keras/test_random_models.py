"""Random models, another twelve in each run (`tests/soak/random_models.py`): the numbers of plain Keras on two ranks."""

from __future__ import annotations

import time

import pytest

from random_models import AT_A_TIME, compare

pytestmark = pytest.mark.long


@pytest.mark.timeout(1800)
def test_random_models_train_as_in_plain_keras():
    first = time.time_ns() % 1_000_000
    told = [f"python tests/soak/random_models.py --seed {first} --runs {AT_A_TIME} repeats this"]
    print(told[0])
    outcome = compare(range(first, first + AT_A_TIME), 2, told.append)
    assert outcome["wrong"] == 0, "\n".join(told)
    assert outcome["equal"] >= AT_A_TIME // 2, "\n".join(told)  # or the generator makes models that are refused
