"""`hvd.DistributedGradientTape`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow.collectives import Average, allreduce
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.gradients import Choices, HorovodReduction
from tarantella.keras import adapter
from tarantella.keras.loops import guard
from tarantella.keras.loops import reducers as loops
from tarantella.keras.reduction import gradients, ops


class _Tape:
    """A tape whose `gradient` is reduced; everything else is the tape's."""

    def __init__(self, tape: tf.GradientTape, choices: Choices) -> None:
        self._tape = tape
        self._choices = choices
        self.register_local_source = choices.register_local_var

    def __enter__(self) -> _Tape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False) -> Any:
        """The gradients, reduced over the ranks. Collective."""
        grads = self._tape.gradient(target, sources, output_gradients)
        flat = tf.nest.flatten(sources)
        own = gradients.flatten_up_to(sources, grads)
        with as_horovod(), ops.translated_errors():
            return tf.nest.pack_sequence_as(sources, self._reduced(own, flat))

    def _reduced(self, grads: list[Any], sources: list[Any]) -> list[Any]:
        if all(adapter.is_variable(source) for source in sources):
            guard.note_reduced(sources)
            return loops.mark(HorovodReduction(self._choices).reduce_gradients(grads, sources))
        choices = self._choices
        return [
            None if g is None else allreduce(g, op=choices.op, compression=choices.compression, process_set=choices.process_set)
            for g in grads
        ]


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape that gives the gradients of all ranks together.

    Args:
        gradtape: the tape, in use already or to be entered through this one.
        device_dense, device_sparse, num_groups, groups: ignored: gradients travel in buckets.
        compression: the type in which they travel.
        sparse_as_dense: rows of an embedding are reduced as a whole table.
        op: `Average` or `Sum`.
        scale_local_gradients: whether gradients of local variables are divided by the number of ranks.
    """
    return _Tape(
        gradtape,
        Choices(op, compression, sparse_as_dense, gradient_predivide_factor, process_set, scale_local_gradients),
    )


def PartialDistributedGradientTape(gradtape: tf.GradientTape, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """The same with layers whose gradients stay on their rank. Arguments: as `DistributedGradientTape`."""
    tape = DistributedGradientTape(gradtape, *args, **kwargs)
    register_layers(tape.register_local_source, local_layers)
    return tape


def register_layers(register: Any, layers: Any) -> None:
    """Registers the trainable variables of a layer, or of several."""
    several = layers if isinstance(layers, (list, tuple, set)) else [] if layers is None else [layers]
    for layer in several:
        for variable in layer.trainable_weights:
            register(variable)
