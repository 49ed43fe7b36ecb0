"""`hvd.elastic` of `horovod.tensorflow`: states with the variables of a model and its optimizer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.horovod.common import basics
from tarantella.horovod.common.elastic import ObjectState, run_fn
from tarantella.horovod.common.elastic import State as State
from tarantella.horovod.tensorflow import graphs
from tarantella.horovod.tensorflow.functions import broadcast_variables
from tarantella.horovod.tensorflow.objects import broadcast_object
from tarantella.keras import adapter


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """As `run_fn`: the function continues from the last commit after a restart."""
    return run_fn(func)


class TensorFlowState(ObjectState):
    """Variables, and values of the script.

    Args:
        variables: of TensorFlow or Keras.
        session: None.
        kwargs: as `ObjectState`.

    Raises:
        UnsupportedError: the variables are of a graph of TensorFlow 1.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        if session is not None:
            raise UnsupportedError("TensorFlowState(session=...): a session's variables are not kept; train eagerly")
        graphs.refuse("hvd.elastic.TensorFlowState", "train eagerly, or save the variables by tf.compat.v1.train.Saver")
        self._given = list(variables or ())
        super().__init__(broadcast_object, basics.rank, **kwargs)
        self._arrays: list[Any] | None = None
        self.save()

    def tracked(self) -> list[Any]:
        """The variables, in an order that is the same on all ranks."""
        return self._given

    def content(self) -> Any:
        return {**super().content(), "arrays": self._arrays}

    def restore_from(self, content: Any) -> None:
        super().restore_from(content)
        self._assign(content["arrays"])

    def save(self) -> None:
        self._arrays = [np.array(adapter.unwrap(variable).numpy()) for variable in self.tracked()]
        super().save()

    def restore(self) -> None:
        self._assign(self._arrays or [])
        super().restore()

    def sync(self, root: int = 0) -> None:
        broadcast_variables(self.tracked(), root)
        super().sync(root)

    def _assign(self, arrays: Sequence[Any]) -> None:
        variables = self.tracked()
        if [v.shape for v in variables] != [tf.TensorShape(a.shape) for a in arrays]:
            raise ValueError(
                f"hvd.elastic: the commit has {len(arrays)} variables, the model and its optimizer have {len(variables)}, or "
                "their shapes differ: build the model before the state, and do not change it"
            )
        for variable, array in zip(variables, arrays, strict=True):
            adapter.unwrap(variable).assign(array)


class TensorFlowKerasState(TensorFlowState):
    """A model of Keras, its optimizer, and values of the script.

    Args:
        model: build it before.
        optimizer: of a loop; else the one that the model was compiled with.
        backend: ignored.
        kwargs: as `ObjectState`.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = adapter.optimizer_of(model) if optimizer is None else optimizer
        super().__init__(**kwargs)

    def tracked(self) -> list[Any]:
        if self.optimizer is None:
            return adapter.variables(self.model)
        if self.model.built:  # its first step would make the optimizer's variables
            adapter.build_optimizer(self.optimizer, self.model.trainable_variables)
        once = {id(v): v for v in (*adapter.variables(self.model), *adapter.state_of_optimizer(self.optimizer))}
        return list(once.values())
