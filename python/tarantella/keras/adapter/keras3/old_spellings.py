"""What scripts write that were made for Keras before 3, and mean the same in Keras 3."""

from __future__ import annotations

import functools
from typing import Any

from tarantella.keras.adapter.front_end import keras


class _Variables(list[Any]):
    def __call__(self) -> list[Any]:
        return self


@functools.cache
def accept_old_spellings() -> None:
    """Lets scripts write ``optimizer.variables()``, ``optimizer.lr`` and ``compile(experimental_run_tf_function=...)``."""
    variables, compile_model = keras.optimizers.Optimizer.variables.fget, keras.Model.compile
    owner = next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))  # in Model it would count as a user's

    def compile(self: Any, *args: Any, experimental_run_tf_function: Any = None, **kwargs: Any) -> Any:
        return compile_model(self, *args, **kwargs)

    keras.optimizers.Optimizer.variables = property(lambda self: _Variables(variables(self)))
    if not hasattr(keras.optimizers.Optimizer, "lr"):
        keras.optimizers.Optimizer.lr = keras.optimizers.Optimizer.learning_rate
    owner.compile = functools.wraps(compile_model)(compile)
