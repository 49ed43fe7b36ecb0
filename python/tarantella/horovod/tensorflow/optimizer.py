"""`hvd.DistributedOptimizer`: for `fit` of a plain Keras model, and for loops."""

import functools
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow.collectives import Average
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.gradients import Choices, HorovodReduction
from tarantella.horovod.tensorflow.tape import register_layers
from tarantella.keras import adapter
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.loops import optimizers
from tarantella.keras.reduction import ops


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    num_groups: int = 0,
    groups: Any = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    use_locking: bool = False,
) -> Any:
    """Makes an optimizer of Keras reduce the gradients of all ranks before it uses them.

    Args:
        optimizer: any optimizer of Keras or TensorFlow 1; it is changed, not copied, and its class stays.
        name, use_locking, device_dense, device_sparse, num_groups, groups: ignored: gradients travel in buckets.
        backward_passes_per_step: so many steps add up their gradients on each rank before these are reduced and applied.
        average_aggregated_gradients: whether their mean is applied, not their sum.
        Others: as `DistributedGradientTape`.

    Raises:
        TypeError: it is no optimizer of Keras. UnsupportedError: Adasum; several passes of a LossScaleOptimizer of
            legacy Keras, or of an optimizer of TensorFlow 1; in `fit`, a LossScaleOptimizer around this one.
    """
    choices = Choices(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if backward_passes_per_step > 1:
            raise UnsupportedError(
                "hvd.DistributedOptimizer(backward_passes_per_step=k): not with an optimizer of TensorFlow 1"
            )
        _distribute_in_sessions(optimizer, choices)
        return optimizer
    if not adapter.is_optimizer(optimizer):
        raise TypeError(f"hvd.DistributedOptimizer needs an optimizer of Keras, not {type(optimizer).__name__}")
    if optimizers.is_distributed(optimizer):
        raise ValueError("hvd.DistributedOptimizer: the optimizer reduces gradients already: wrap it once")
    if backward_passes_per_step > 1:
        if not LEGACY:
            _accumulate(optimizer, backward_passes_per_step)
        elif len(adapter.optimizers_of(optimizer)) > 1:
            raise UnsupportedError("hvd.DistributedOptimizer(backward_passes_per_step=k): not around a LossScaleOptimizer here")
        choices.passes = 1 if average_aggregated_gradients else backward_passes_per_step
    _prepare_trainings()
    passes = backward_passes_per_step if LEGACY else 1
    optimizers.distribute(optimizer, functools.partial(HorovodReduction, choices), passes)
    object.__setattr__(optimizer, "register_local_var", choices.register_local_var)
    return optimizer


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """The same with layers whose gradients stay on their rank. Arguments: as `DistributedOptimizer`."""
    wrapped = DistributedOptimizer(optimizer, *args, **kwargs)
    register_layers(wrapped.register_local_var, local_layers)
    return wrapped


def _accumulate(optimizer: Any, passes: int) -> None:
    if optimizer.built:
        raise ValueError("hvd.DistributedOptimizer(backward_passes_per_step=k) must be called before the optimizer is built")
    optimizer.gradient_accumulation_steps = passes


@functools.cache
def _prepare_trainings() -> None:
    """Keras compiles a training step as a whole by XLA where it can, which cannot call our ops."""
    adapter.before_training(_prepare)


def _prepare(model: Any) -> None:
    if any(optimizers.is_scaled_outside(optimizer) for optimizer in adapter.held_optimizers(model)):
        raise UnsupportedError(
            "hvd.DistributedOptimizer: Keras put a LossScaleOptimizer around it for mixed_float16, with which each rank would "
            "skip steps by itself. Put it inside: hvd.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(optimizer))"
        )
    if not any(optimizers.is_distributed(optimizer) for optimizer in adapter.held_optimizers(model)):
        return
    if getattr(model, "jit_compile", False):
        runtime.logger.info("jit_compile is off: XLA compiles no step of a hvd.DistributedOptimizer; use tnt.Model for that")
        for owner, attribute, value in adapter.without_jit(model):
            setattr(owner, attribute, value)


def _distribute_in_sessions(optimizer: Any, choices: Choices) -> None:
    """Changes the optimizer, whose class stays.

    Raises:
        ValueError: it was given before.
    """
    if "compute_gradients" in vars(optimizer):
        raise ValueError("hvd.DistributedOptimizer: the optimizer reduces gradients already: wrap it once")
    original = optimizer.compute_gradients

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compute_gradients(*args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        pairs = original(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        with as_horovod(), ops.translated_errors():
            reduced = HorovodReduction(choices).reduce_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables, strict=True))

    optimizer.compute_gradients = compute_gradients
    optimizer.register_local_var = choices.register_local_var
