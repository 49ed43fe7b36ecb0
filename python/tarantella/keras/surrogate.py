"""An object that stands for a Keras model: it has the model's attributes and its class."""

from collections.abc import Callable
from typing import Any

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.compat.operations import Barrier
from tarantella.keras import adapter
from tarantella.keras.drivers.distributed_model import DistributedModel

_ATTRIBUTES_OF_PREDECESSOR: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda model: Barrier(),
    "compiled": adapter.is_compiled,  # Keras 3 has it, legacy Keras has not
    "dist_optimizer": adapter.optimizer_of,
    "group": lambda model: Group(),
    "rank": lambda model: runtime.get_rank(),
}
"""What the predecessor's models have beside those of Keras, and how each is computed from the Keras model inside."""


class Surrogate:
    """Passes attributes that a derived class does not have to the Keras model inside."""

    _tnt: DistributedModel

    @property
    def model(self) -> Any:
        """The Keras model inside. It has the same weights and does not communicate: for serial evaluation or prediction."""
        return self._tnt.keras_model

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(model, keras.Model) holds
        return type(self.model)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.model, name)
        except AttributeError:
            if name not in _ATTRIBUTES_OF_PREDECESSOR:
                raise
        return _ATTRIBUTES_OF_PREDECESSOR[name](self.model)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.model, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.model, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *dir(self.model)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tarantella.Model of {self.model!r}>"
