"""What losses of a pipeline divide by, where that depends on the whole batch: how many elements its masks or weights leave.

The last stage needs these sums before it computes the loss of the first micro-batch. As a rule a mask follows from the model's
inputs alone, so the last stage's rank computes it by itself, without the layers of others.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.data import split
from tarantella.keras.pipeline.rank_model import RankModel
from tarantella.keras.reproducible.shards import TreeSum


class Divisors:
    """Finds the divisors of one step, on a rank with the last stage."""

    def __init__(self, hooks: RankModel, training: bool) -> None:
        self._hooks, self._training, self._cut = hooks, training, hooks.cut

    def batch_divisors(self, shards: list[tuple[Any, split.Share]]) -> list[tf.Tensor]:
        """The sums over all micro-batches; none if no loss needs any. Collective on the ranks with the last stage then."""
        tree = TreeSum()
        for batch, share in shards:
            tree.add(self._hooks.divisors(batch, self._output(batch), share, self._training))
        tensors, _ = tree.total()
        return self._hooks.replicas.sums(tensors) if tensors else []

    def _output(self, batch: Any) -> Any:
        """Zeros in the place of the model's output, with the masks that it has."""
        x = adapter.batch_for_step(batch)[0]
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        outputs = [tf.zeros([rows, *part.tail], part.dtype) for part in self._cut.outputs]
        for output, mask in zip(outputs, self._masks_of(x), strict=True):
            if mask is not None:
                adapter.set_mask(output, mask)
        graph = self._cut.graph
        return adapter.layer_graph_outputs(graph, dict(zip(map(id, graph.outputs), outputs, strict=True)))

    def _masks_of(self, x: Any) -> list[Any]:
        """The mask of each output of the model; None if it has none."""
        if not any(self._cut.masked):
            return [None] * len(self._cut.masked)
        found = iter(self._hooks.program_of_masks(x, self._training)(x))
        return [next(found) if is_masked else None for is_masked in self._cut.masked]


def program_of_masks(model: Any, x: Any, training: bool) -> Callable[[Any], list[Any]]:
    """The part of the model that makes the masks of its outputs. x: inputs, or their specs.

    Raises:
        UnsupportedError: weights are needed for it.
    """
    masks: list[Any] = []

    def run(*flat: Any) -> list[Any]:
        outputs = model(tf.nest.pack_sequence_as(x, flat), training=training)
        masks.extend(mask for mask in map(adapter.mask_of, tf.nest.flatten(outputs)) if mask is not None)
        return masks

    specs = [tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) for tensor in tf.nest.flatten(x)]
    with tf.init_scope():
        whole = tf.compat.v1.wrap_function(run, specs)  # the one function of TensorFlow of which a part can be run
    inputs = whole.inputs[: len(specs)]
    program = whole.prune(inputs, masks)
    captured = {placeholder.op.name for _, placeholder in program.graph.captures}
    if any(tensor.op.name in captured for op in program.graph.get_operations() for tensor in op.inputs):
        raise UnsupportedError(
            "the mask of the model's output depends on weights, which other ranks of the pipeline have, and a loss divides by "
            "it: end the mask before the output, use reduction='sum_over_batch_size', or tnt.ParallelStrategy.DATA"
        )
    return lambda batch: list(program(*tf.nest.flatten(batch)))
