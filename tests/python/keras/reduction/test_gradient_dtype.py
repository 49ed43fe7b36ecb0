"""Gradients sent in 16 bits: how far they are from exact ones, how many bytes move, what stays as it is, and who is refused."""

from __future__ import annotations

import json

import pytest

from support.findings import Findings
from support.launch import RANKS, run_ranks

pytestmark = pytest.mark.long

SIZE = 2
ELEMENTS = 16 * 64 + 64 + 64 + 1
STEPS = 4


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/reduction/gradient_dtype.py")


def test_errors_are_bounded(found):
    """By one rounding of each rank's part and one of the sum: u (sum of |parts| + |sum|)."""
    for errors in found["errors_are_bounded"]:
        for dtype, (of_bound, greatest) in errors.items():
            assert of_bound <= 1, dtype
            assert greatest > 1e-6, f"nothing was rounded to {dtype}: the test sees nothing"


def test_half_the_bytes(found):
    for own, bfloat16, float16 in found["half_the_bytes"]:
        assert own["bytes"] == STEPS * ELEMENTS * 4
        assert bfloat16["bytes"] == float16["bytes"] == STEPS * ELEMENTS * 2
        assert own["steps"] == bfloat16["steps"] == float16["steps"] == STEPS


def test_trains_as_plain_keras_does(found):
    first, second = found["trains_as_plain_keras_does"]
    assert first["bfloat16"] == second["bfloat16"]
    assert first["float16"] == second["float16"]
    for dtype, tolerance in (("bfloat16", 3e-2), ("float16", 5e-3)):
        assert first[dtype]["loss"] == pytest.approx(first["plain"]["loss"], rel=tolerance)
        assert first[dtype]["mae"] == pytest.approx(first["plain"]["mae"], rel=tolerance)
        assert first[dtype]["loss"][-1] < 0.5 * first[dtype]["loss"][0]


def test_only_gradients_are_rounded(found):
    for distributed, reducers, own, more_reducers, expected in found["only_gradients_are_rounded"]:
        assert distributed == pytest.approx(expected, rel=1e-5)
        assert own == pytest.approx(expected, rel=1e-5)
        assert "metrics" in reducers
        assert {"metrics", "gradients"} <= set(more_reducers)


def test_without_a_word_nothing_is_rounded(found):
    assert found["without_a_word_nothing_is_rounded"] == [[STEPS * ELEMENTS * 4, STEPS * ELEMENTS * 2]] * SIZE


def test_nonsense_is_refused(found):
    for text, number, hook in found["nonsense_is_refused"]:
        assert text == ["InvalidArgumentError", "gradient_dtype is 'float8': use 'bfloat16', 'float16' or None"]
        assert number == ["InvalidArgumentError", "gradient_dtype is 16: use 'bfloat16', 'float16' or None"]
        assert hook == ["TypeError", "bucket_hook is 'print': use a function of a tnt.PackedBucket"]


def test_ranks_that_differ_are_named(found):
    sentence = (
        "rank 1 and rank 0 do not train the same model: the type on the wire (gradient_dtype, TNT_GRADIENT_DTYPE) is bfloat16 "
        "on rank 1, each tensor's own on rank 0"
    )
    assert found["ranks_that_differ_are_named"] == [["MismatchError", sentence]] * SIZE


def test_a_hook_sees_every_bucket(found):
    names = ["sequential/dense_1/bias", "sequential/dense_1/kernel", "sequential/dense/bias", "sequential/dense/kernel"]
    for seen, steps, any_norm in found["a_hook_sees_every_bucket"]:
        assert seen == [[0, "bfloat16", [ELEMENTS], [3, 2, 1, 0], names]] * STEPS
        assert steps == {"0": STEPS}
        assert any_norm


def test_a_hook_may_change_what_is_sent(found):
    assert found["a_hook_may_change_what_is_sent"] == [[True, True]] * SIZE


def test_a_hook_runs_in_eager_steps(found):
    assert found["a_hook_runs_in_eager_steps"] == [[0] * STEPS] * SIZE


def test_a_hook_may_compute_with_tensorflow(found):
    assert min(found["a_hook_may_compute_with_tensorflow"]) > 0


def test_copies_have_them_too(found):
    assert found["copies_have_them_too"] == [[STEPS * ELEMENTS * 2, STEPS]] * SIZE


SCRIPT = """
import keras, numpy as np, tarantella as tnt
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)]))
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
print(model.stats()["bytes"])
"""


def test_the_launcher_says_it():
    assert run_ranks(2, SCRIPT, launcher_options=["--gradient-dtype", "bfloat16"]).good().stdout == "8.0\n"


def test_nonsense_in_the_environment_is_named():
    result = run_ranks(2, SCRIPT, env={"TNT_GRADIENT_DTYPE": "half"})
    assert result.code == 2, result.said  # the launcher refuses it before a rank starts
    assert "TNT_GRADIENT_DTYPE=half: expected bfloat16, float16 or none" in result.stderr.splitlines()[-1], result.said


def fail(tmp_path, how, who, mode):
    result = run_ranks(2, RANKS / "keras/reduction/bucket_hook_fails.py", tmp_path, how, who, mode)
    assert result.code == 1, result.said
    assert not result.left_behind, result.said
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("how", "who", "mode"), [("raise", "1", "graph"), ("raise", "01", "eager"), ("keep", "1", "graph")])
def test_a_hook_that_fails_ends_the_step_on_all_ranks(tmp_path, how, who, mode):
    why = {
        "raise": "ValueError: the norm is not a number",
        "keep": "RuntimeError: it has kept the array of the bucket, which is valid during the call only: copy it",
    }[how]
    errors = fail(tmp_path, how, who, mode)
    assert errors[0]["text"] == errors[1]["text"]
    assert errors[0]["text"][5] in who
    assert errors[0]["text"][6:] == (
        f": gradients bucket 0: 148 B, 4 tensors, model/dense/bias …: the bucket hook failed: {why}"
    )
    for rank, error in enumerate(errors):
        assert error["kind"] == "AbortedError"
        assert error["cause"] == (repr_of(why) if str(rank) in who else "None")
        if str(rank) in who:
            assert error["seconds"] < 5


def repr_of(why):
    kind, _, text = why.partition(": ")
    return f"{kind}({text!r})"
