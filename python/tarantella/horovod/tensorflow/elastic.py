"""`hvd.elastic` of `horovod.tensorflow`: states with the variables of a model and its optimizer."""

from collections.abc import Callable, Sequence
from typing import Any

from tarantella.errors import UnsupportedError
from tarantella.horovod.common import basics
from tarantella.horovod.common.elastic import ObjectState, run_fn
from tarantella.horovod.common.elastic import State as State
from tarantella.horovod.tensorflow import graphs
from tarantella.horovod.tensorflow.objects import broadcast_object
from tarantella.keras import adapter
from tarantella.keras.elastic.committed import Variables, trace_by_generation


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """As `run_fn`."""
    trace_by_generation()
    return run_fn(func)


class TensorFlowState(ObjectState, Variables):
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
        self._keep(None, None, variables or (), kwargs)

    def _keep(self, model: Any, optimizer: Any, variables: Sequence[Any], values: dict[str, Any]) -> None:
        graphs.refuse("hvd.elastic.TensorFlowState", "train eagerly, or save the variables by tf.compat.v1.train.Saver")
        State.__init__(self, broadcast_object, basics.rank)
        Variables.__init__(self, model, optimizer, variables, **values)

    def content(self) -> Any:
        return {**super().content(), "arrays": self._arrays}

    def restore_from(self, content: Any) -> None:
        super().restore_from(content)
        self.assign(content["arrays"])


class TensorFlowKerasState(TensorFlowState):
    """A model of Keras, its optimizer, and values of the script.

    Args:
        model: build it before.
        optimizer: of a loop; else the one that the model was compiled with.
        backend: ignored.
        kwargs: as `ObjectState`.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self._keep(model, adapter.optimizer_of(model) if optimizer is None else optimizer, (), kwargs)
