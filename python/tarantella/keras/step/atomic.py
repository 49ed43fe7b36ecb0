"""A training step of an elastic job changes weights only when all of its communication is done.

So a step that fails because a rank was lost has changed none, and is made again by the ranks that are left. The optimizer works
behind a gate. When the step was traced, the gate is made to wait for whatever else the step communicates, such as the states of
metrics, which Keras reads after the update. Other changes that a step makes, such as those of SpectralNormalization to its
kernel, do not wait. They are reported, and `elastic/kept_state.py` puts them back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella import generations
from tarantella.errors import UnsupportedError
from tarantella.keras import context
from tarantella.keras.adapter.tensorflow import make_wait
from tarantella.keras.xla.operations import handles_changed, resources, resources_changed

_GATE = "tnt_gate"
_OURS = "Tnt"
_LOCAL = ("TntTreeAdd",)  # those of our operations that do not communicate


@contextmanager
def behind_gate(gradients: list[Any]) -> Iterator[list[Any]]:
    """What is added to the graph in this context waits until the step has communicated.

    So do the gradients that it gives, which are the same; None stays.
    """
    if not generations.is_elastic() or context.graph() is None:
        yield gradients
        return
    parts = [part for part in tf.nest.flatten(gradients, expand_composites=True) if part is not None]
    with tf.control_dependencies(parts):
        gate = tf.no_op(name=_GATE)
    with tf.control_dependencies([gate]):  # an optimizer decays weights without a look at gradients
        yield [None if g is None else tf.nest.map_structure(tf.identity, g, expand_composites=True) for g in gradients]


def atomic(step: Callable[[Any], Any], note: Callable[[Any, Sequence[Any]], None]) -> Callable[[Any], Any]:
    """A training step that, in an elastic job, changes weights only when it has communicated.

    Args:
        note: is given the graph of the step when it was traced, and the handles of the variables that it changes before.
    """
    if not generations.is_elastic():
        return step

    def atomic_step(element: Any) -> Any:
        logs = step(element)
        if (graph := context.graph()) is not None:
            waiting = close_gates(graph)
            note(graph, handles_changed(graph, [operation for operation in graph.get_operations() if operation not in waiting]))
        return logs

    return atomic_step


def close_gates(graph: Any) -> set[Any]:
    """Makes the gates of a step that was traced wait for all that the step communicates. Returns the operations behind them.

    Raises:
        UnsupportedError: the step communicates what depends on updated weights, or has no gate.
    """
    operations = graph.get_operations()
    gates = [operation for operation in operations if operation.type == "NoOp" and _GATE in operation.name]
    ours = [operation for operation in operations if operation.type.startswith(_OURS) and operation.type not in _LOCAL]
    if ours and not gates:
        raise UnsupportedError(
            "--elastic: no optimizer of the model updates weights in the training step, so nobody knows when it changes what: "
            "train without --elastic, or with --max-restarts"
        )
    waiting: set[Any] = set()
    for gate in gates:
        later = _after(gate, operations)
        late = next((operation for operation in ours if operation in later), None)
        if late is not None:
            raise UnsupportedError(
                f"--elastic: the training step communicates ({late.name}) after an optimizer has changed weights, as for a "
                "second optimizer step or a metric of the new weights, so it could not be made again when a rank is lost: "
                "update metrics before the one optimizer step, or train with --max-restarts"
            )
        make_wait(gate, ours)
        waiting |= later
    return waiting


def _after(gate: Any, operations: Sequence[Any]) -> set[Any]:
    """Those of a graph's operations, in the order in which they were made, that wait for this one.

    What uses a variable waits for what has changed it before. TensorFlow adds these edges when the function is complete.
    """
    found = {gate}
    changed: set[Any] = set()  # variables, as the tensors by which operations get them
    for operation in operations:
        waits = any(tensor.op in found for tensor in operation.inputs) or any(o in found for o in operation.control_inputs)
        if waits or resources(operation) & changed:
            found.add(operation)
            changed |= resources_changed(operation)
    return found
