"""An optimizer that changes a `tnt.Model` without the other ranks is refused before it does; on a plain model a warning."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import BOTH
from support.launch import RANKS, run_ranks


@pytest.fixture(scope="module", params=BOTH)
def found(request):
    size, environment = request.param
    return Findings(size, RANKS / "keras/loops/guard.py", env={**environment, "TNT_TIMEOUT": "60"})


def test_refused_before_anything_changes(found):
    for on_rank in found["refused"]:
        assert len(on_rank) >= 8
        for how, (kind, text, unchanged, steps) in on_rank.items():
            assert kind == "UnsupportedError", (how, text)
            assert "first/kernel and 3 other variables of the tnt.Model" in text, how
            assert "tape = tnt.DistributedGradientTape(tape)" in text, how
            assert "optimizer = tnt.optimizers.Optimizer(optimizer)" in text, how
            assert unchanged, how
            assert steps == 0, how


def test_the_lines_to_change_are_right(found):
    for on_rank in found["the_lines_to_change"]:
        assert len(on_rank) == 10
        assert on_rank == {how: [[], True] for how in on_rank}


def test_a_reduced_number_is_no_gradient(found):
    for kind, text in found["a_number_is_reduced_only"]:
        assert kind == "UnsupportedError"
        assert "drift apart" in text


def test_an_optimizer_that_the_model_does_not_hold(found):
    for kind, text, same_model, steps in found["an_optimizer_that_the_model_does_not_hold"]:
        assert kind == "UnsupportedError"
        assert "the model does not hold" in text
        assert "attribute of the model" in text
        assert (same_model, steps) == (True, 0)


def test_what_is_right_passes_in_silence(found):
    for errors, messages in found["steps_that_pass"]:
        assert errors == [[]] * 5
        assert not [m for m in messages if "synchronised" in m]


def test_a_loop_without_an_optimizer_is_warned_of_unless_it_reduces(found):
    for outcomes in found["without_an_optimizer"]:
        assert [name for name, *_ in outcomes] == ["seen", "reduced", "seen", "reduced", "right"]
        for name, *messages in outcomes:
            said = [message for message in messages if "synchronised" in message]
            assert len(said) == (name == "seen"), outcomes
            assert all("a training loop calls assign" in message and "/kernel" in message for message in said)


def test_variables_of_no_model_change_with_one_warning(found):
    for messages in found["variables_of_no_model"]:
        assert len(messages) == 1, messages
        assert "a training loop calls assign_sub of" in messages[0] and "nothing is synchronised" in messages[0]


def test_a_plain_model_trains_with_one_warning(found):
    for errors, messages in found["a_plain_model"]:
        assert errors == [[], []]
        assert len(messages) == 1, messages
        assert "nothing is synchronised" in messages[0]
        assert "tape = tnt.DistributedGradientTape(tape)" in messages[0]


def test_a_loop_of_one_line_is_warned_of():
    """The method of the variable is looked up before the first gradient is computed, and a graph is traced once."""
    script = """
        import tensorflow as tf
        import tarantella

        print(tarantella.get_size())
        weight = tf.Variable([1.0])

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = weight * weight
            weight.assign_sub(0.1 * tape.gradient(loss, weight))

        step()
        step()
    """
    result = run_ranks(2, script, timeout=30)
    assert result.stderr.count("a training loop calls assign_sub of") == 1, result.said


def test_a_script_that_only_imports_the_package_is_warned():
    """No tnt.Model, and no rank was asked for."""
    script = """
        import keras
        import tensorflow as tf
        import tarantella

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tf.ones([3, 2])))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    """
    result = run_ranks(2, script, timeout=30)
    assert result.stderr.count("nothing is synchronised") == 1, result.stderr
    assert result.code == 1 and "each of the 2 ranks has trained its own model" in result.stderr
