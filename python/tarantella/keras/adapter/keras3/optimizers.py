"""Optimizers of Keras 3.

The state of gradient accumulation is private: the public ``iterations`` counts updates, not steps, and the sums have no name.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras.src.optimizers import base_optimizer

from tarantella.keras.adapter.common.optimizers import optimizers_of
from tarantella.keras.adapter.front_end import keras
from tarantella.keras.adapter.keras3.models import unwrap


def optimizer_hook() -> str:
    """The optimizer's method that gets gradients before they are clipped, unscaled or tested for being finite."""
    return "apply"


def as_method(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement for this method that calls a function of gradients and variables."""
    return apply


def as_apply(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as a function of gradients and variables."""
    return method


def overridden_hooks(optimizer: Any) -> list[str]:
    """The optimizer's methods that get gradients, as pairs with variables, before `optimizer_hook` does: of a class of users.

    Keras' own `apply_gradients` only unzips the pairs. Another may compute with them, as adaptive clipping does.
    """
    name = "apply_gradients"
    return [] if getattr(type(optimizer), name) is getattr(keras.optimizers.Optimizer, name) else [name]


def repeated_rows_matter(optimizer: Any = None) -> bool:
    """Whether it makes a difference to the optimizer that a sparse gradient has a row several times. None: any optimizer."""
    if optimizer is None:
        return True
    inner = optimizers_of(optimizer)[-1]
    is_linear = isinstance(inner, keras.optimizers.SGD)
    return not is_linear or any((inner.clipnorm, inner.global_clipnorm, inner.clipvalue))


def scale_hook() -> str:
    """The method of a LossScaleOptimizer that scales a loss before its gradients are computed."""
    return "scale_loss"


def unscale_hooks(optimizer: Any) -> list[str]:
    """None: a LossScaleOptimizer unscales gradients after it has got them."""
    return []


def scale_of_gradients(optimizer: Any) -> Any:
    """The factor of the float16 gradients that a LossScaleOptimizer is given: it unscales them."""
    return 1.0


def accumulating(optimizer: Any) -> Any:
    """The optimizer that accumulates gradients over several steps: this one or the one that it wraps. None if neither does."""
    return next((o for o in optimizers_of(optimizer) if getattr(o, "gradient_accumulation_steps", None)), None)


def steps_of_update(optimizer: Any) -> int:
    """How many steps the optimizer takes for one update of the variables."""
    owner = accumulating(optimizer)
    return 1 if owner is None else int(owner.gradient_accumulation_steps)


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the optimizer's state, as its first step would."""
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(variables))


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """The variables that a built optimizer changes."""
    return list(optimizer._trainable_variables)


def accumulators(optimizer: Any, variables: Sequence[Any]) -> list[tf.Variable]:
    """The sums of gradients of each of the variables, in an accumulating optimizer that is built."""
    return [unwrap(optimizer._accumulated_gradients[optimizer._get_variable_index(v)]) for v in variables]


def is_update_step(optimizer: Any) -> tf.Tensor:
    """Whether the next call of `apply` of an accumulating optimizer changes the variables."""
    return tf.equal((micro_steps(optimizer) + 1) % optimizer.gradient_accumulation_steps, 0)


def between_updates(optimizer: Any) -> bool:
    """Whether an accumulating optimizer holds gradients that it has not applied yet."""
    return bool(micro_steps(optimizer) % optimizer.gradient_accumulation_steps != 0)


def step_counter(optimizer: Any) -> Any:
    """The variable that counts the calls of `apply`, whether they change variables or not.

    Of an accumulating optimizer ``iterations`` is a number of updates, and no variable. Before Keras 3.5 it was this variable.
    """
    return optimizer._iterations if hasattr(optimizer, "_iterations") else optimizer.iterations


def micro_steps(optimizer: Any) -> tf.Tensor:
    """How often `apply` was called, whether it changed the variables or not."""
    return unwrap(step_counter(optimizer)).read_value()


def clips_by_norm_of_all(optimizer: Any) -> bool:
    """Whether the optimizer scales its gradients by a norm of all of them."""
    return bool(optimizer.global_clipnorm)


def clipping_of_parts(
    optimizer: Any, is_here: Callable[[Any], bool], total: Callable[[Any], Any]
) -> list[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) by which the optimizer clips the gradients that a rank has, by the norm of all.

    The squares of each gradient are added up by the rank that has it, and the sums are added up as Keras does: the bits are
    those of one device.

    Args:
        is_here: whether this rank has the gradient of a variable.
        total: the sums over ranks of some numbers.
    """
    apply_gradients, clip = optimizer._backend_apply_gradients, optimizer._clip_gradients
    applied: list[Any] = []

    def _backend_apply_gradients(grads: Any, trainable_variables: Any) -> Any:
        applied[:] = trainable_variables
        return apply_gradients(grads, trainable_variables)

    def global_norm(grads: Any) -> Any:
        ops = keras.ops
        squares = [
            ops.sum(ops.square(g)) if is_here(v) else ops.zeros((), g.dtype) for g, v in zip(grads, applied, strict=True)
        ]
        return ops.sqrt(ops.sum(total(ops.stack(squares))))

    def _clip_gradients(grads: Any) -> Any:
        original = base_optimizer.global_norm
        base_optimizer.global_norm = global_norm
        try:
            return clip(grads)
        finally:
            base_optimizer.global_norm = original

    return [
        (optimizer, "_backend_apply_gradients", _backend_apply_gradients),
        (optimizer, "_clip_gradients", _clip_gradients),
    ]
