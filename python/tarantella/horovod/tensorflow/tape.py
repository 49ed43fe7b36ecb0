"""`hvd.DistributedGradientTape`."""

from typing import Any

import tensorflow as tf

from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow.collectives import Average, allreduce
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.gradients import Choices, HorovodReduction
from tarantella.keras import adapter
from tarantella.keras.loops import guard, models
from tarantella.keras.loops import reducers as loops
from tarantella.keras.reduction import gradients, ops


class _Tape:
    """A tape whose `gradient` is reduced; everything else is the tape's."""

    def __init__(self, tape: tf.GradientTape, choices: Choices) -> None:
        self._tape = tape
        self._choices = choices
        self._last: tuple[list[Any], list[Any]] = [], []  # the sources of the last call of `gradient`, and their gradients
        self.register_local_source = choices.register_local_var

    def __enter__(self) -> Any:
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
            reduced = self._reduced(own, flat)
        self._last = flat, reduced
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(self, gradients: Any = None) -> tuple[list[Any], list[Any]]:
        """The gradients that each rank has for itself, and those that are the same on all ranks, as for norms of each.

        Args:
            gradients: one for each source of the last call of `gradient`; None: those that it returned.

        Raises:
            ValueError: `gradient` was not called, or had another number of sources.
        """
        sources, last = self._last
        given = last if gradients is None else list(gradients)
        if len(given) != len(sources) or not sources:
            raise ValueError(f"{len(given)} gradients are given, and the last call of tape.gradient had {len(sources)} sources")
        groups: tuple[list[Any], list[Any]] = [], []
        for source, gradient in zip(sources, given, strict=True):
            groups[0 if self._choices.is_local(source) else 1].append(gradient)
        return groups

    def _reduced(self, grads: list[Any], sources: list[Any]) -> list[Any]:
        if all(adapter.is_variable(source) for source in sources):
            guard.note_reduced(sources)
            models.try_out(sources)
            return loops.mark(HorovodReduction(self._choices).reduce_gradients(grads, sources))
        choices = self._choices
        if not choices.is_member():
            return grads
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
    choices = Choices(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    return _Tape(gradtape, choices)


def PartialDistributedGradientTape(gradtape: tf.GradientTape, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """The same with layers whose gradients stay on their rank. Arguments: as `DistributedGradientTape`."""
    tape = DistributedGradientTape(gradtape, *args, **kwargs)
    register_layers(tape.register_local_source, local_layers)
    return tape


def register_layers(register: Any, layers: Any) -> None:
    """Registers the trainable variables of a layer, or of several. Raises ValueError if something is no layer."""
    several = layers if isinstance(layers, (list, tuple, set)) else [] if layers is None else [layers]
    for layer in several:
        if not isinstance(layer, adapter.keras.layers.Layer):
            raise ValueError(f"local_layers has a {type(layer).__name__}: all must be layers of Keras")
        for variable in layer.trainable_weights:
            register(variable)
