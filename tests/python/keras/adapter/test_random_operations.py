"""The adapter knows every operation of TensorFlow that draws random numbers, and can get in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import pytest

# of datasets and queues, of the gradients of others, those that make seeds, and what belongs to cuDNN's recurrent layers
NO_DRAWS = (
    *("Dataset", "Queue", "SeedGenerator", "RecordInput", "PartitionedCall"),
    *("Grad", "GetKeyCounter", "GetAlg", "RngSkip", "RngReadAndSkip", "ComputeAccidentalHits"),
    *("CudnnRNN", "KMC2", "KmeansPlusPlus"),
)

SCRIPT = """
    import inspect, json, random, sys
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry
    from tarantella.keras.adapter import random_operations

    def draws(definition):
        names = {argument.name for argument in [*definition.input_arg, *definition.attr]}
        return bool({"seed", "seed2"} & names) or {"key", "counter"} <= names or definition.name.startswith("Stateful")

    known = {name: op_def_registry.get(name) for name in dir(tf.raw_ops)}
    drawing = [name for name, definition in known.items() if definition is not None and draws(definition)]
    calls = []
    random_operations.replace_draws(lambda: True, lambda draw: calls.append(draw.operation) or draw.run())
    tf.random.normal([2])
    tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)
    tf.compat.v1.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)
    tf.function(lambda: tf.random.stateless_truncated_normal([2], [1, 2]))()
    print(json.dumps({"drawing": drawing, "known": list(random_operations.SEEDS), "calls": calls}))
    """


@pytest.fixture(scope="module")
def found():
    run = subprocess.run([sys.executable, "-c", dedent(SCRIPT)], capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_every_operation_that_draws_is_known(found):
    drawing = {name for name in found["drawing"] if not any(part in name for part in NO_DRAWS)}
    assert drawing == set(found["known"])
    assert len(drawing) > 40


def test_the_functions_of_operations_are_replaced(found):
    assert found["calls"] == ["RandomStandardNormal", "RandomUniform", "RandomUniform", "StatelessTruncatedNormalV2"]
