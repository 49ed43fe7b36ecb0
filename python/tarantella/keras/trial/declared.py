"""What users declare about the samples of a batch, in the place of a trial."""

from typing import Any, TypeVar

Function = TypeVar("Function")
_MARK = "_tnt_independent_samples"


def independent_samples(function: Function) -> Function:
    """Decorator of a loss, or of a `train_step`, `test_step` or `compute_loss`: it is a mean over independent samples.

    `tnt.Model` tries each loss and step on a few samples of the first batch, to find out whether ranks may compute it from
    their own samples. One that is declared so is not tried. Use it where a trial is not possible or takes too long.

    Returns:
        The function itself.

    Examples:
        >>> @tnt.independent_samples
        ... def loss(y_true, y_pred):
        ...     return tf.py_function(slow_loss, [y_true, y_pred], tf.float32)
    """
    setattr(function, _MARK, True)
    return function


def is_declared(function: Any) -> bool:
    """Whether a function, a method, or a loss that Keras made of a function, was declared so."""
    return any(hasattr(one, _MARK) for one in (function, getattr(function, "fn", None), getattr(function, "__func__", None)))
