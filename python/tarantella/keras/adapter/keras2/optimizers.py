"""Optimizers of legacy Keras. None of them accumulates gradients over several steps.

Those of the old kind and LossScaleOptimizer hold state that their public ``variables`` leave out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.optimizers import held_optimizers, optimizers_of, taking_pairs
from tarantella.keras.adapter.front_end import keras


def optimizer_hook() -> str:
    """The optimizer's method that gets gradients before they are clipped or tested for being finite."""
    return "apply_gradients"


def as_method(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement for this method that calls a function of gradients and variables."""
    return taking_pairs(apply)


def overridden_hooks(optimizer: Any) -> list[str]:
    """None: that method is the hook."""
    return []


def as_apply(method: Any) -> Callable[..., Any]:
    """The method as a function of gradients and variables. From a method of `as_method`, the function that it was given."""
    if hasattr(method, "_tnt_apply"):
        return method._tnt_apply  # type: ignore[no-any-return]

    def apply(grads: Any, trainable_variables: Any, **kwargs: Any) -> Any:
        return method(list(zip(grads, trainable_variables, strict=True)), **kwargs)

    return apply


def repeated_rows_matter(optimizer: Any = None) -> bool:
    """Whether it makes a difference to the optimizer that a sparse gradient has a row several times: it adds them up first."""
    return False


def scale_hook() -> str:
    """The method of a LossScaleOptimizer that scales a loss before its gradients are computed."""
    return "get_scaled_loss"


def unscale_hooks(optimizer: Any) -> list[str]:
    """The methods that a step gives gradients to before the optimizer gets them."""
    return ["get_unscaled_gradients"] if len(optimizers_of(optimizer)) > 1 else []


def scale_of_gradients(optimizer: Any) -> Any:
    """The factor of the float16 gradients that a LossScaleOptimizer is given: it unscaled them."""
    return 1.0 / optimizer.loss_scale


def accumulating(optimizer: Any) -> Any:
    """None: no optimizer of this Keras accumulates gradients over several steps."""
    return None


def steps_of_update(optimizer: Any) -> int:
    """How many steps the optimizer takes for one update of the variables."""
    return 1


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the optimizer's state, as its first step would."""
    if isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(list(variables))
    else:
        optimizer.build(list(variables))


def step_counter(optimizer: Any) -> Any:
    """The variable that counts the calls of `apply_gradients`."""
    return optimizer.iterations


def optimizer_variables(model: Any) -> list[Any]:
    """The state of all optimizers of the model, with their step counts, learning rates and loss scales."""
    found: dict[int, Any] = {}
    for optimizer in [owner for held in held_optimizers(model) for owner in optimizers_of(held)]:
        found.update((id(value), value) for value in _state(optimizer) if isinstance(value, tf.Variable))
    return list(found.values())


def state_of_optimizer(optimizer: Any) -> list[Any]:
    """The state of one optimizer, as `optimizer_variables` has that of a model's."""
    return [value for owner in optimizers_of(optimizer) for value in _state(owner) if isinstance(value, tf.Variable)]


def whole_optimizer_variables(model: Any) -> list[Any]:
    """Those that every rank holds: all, as no optimizer of legacy Keras is spread over ranks."""
    return optimizer_variables(model)


def _state(optimizer: Any) -> Iterator[Any]:
    if len(optimizers_of(optimizer)) > 1:  # a LossScaleOptimizer; without a dynamic scale it has no state of its own
        yield from getattr(optimizer._loss_scale, "_weights", {}).values()
    elif isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        yield from (*optimizer.weights, *optimizer._hyper.values())
    else:
        yield from (*optimizer.variables, optimizer.learning_rate)
