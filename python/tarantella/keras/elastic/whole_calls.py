"""Methods of `tnt.Model` beside `fit` that survive the loss of ranks: those that are left make the whole call again.

They leave nothing behind but their results, and what layers keep in inference, such as counts of samples. In a callback of
`fit` they are operations of that `fit`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tarantella import collectives, generations, recovery
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.checkpoint import state
from tarantella.keras.elastic.operations import NoState, operations
from tarantella.keras.reduction import weights


class InferenceState(NoState):
    """What the layers of a model keep in inference goes back to what it was when a call is made again."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._copies: list[tuple[tf.Variable, tf.Tensor]] = []

    def note(self) -> None:
        """All ranks have the same weights, and inference begins."""
        if generations.is_elastic():
            self._copies = [(variable, variable.read_value()) for variable in map(adapter.unwrap, self._kept())]

    def put_back(self) -> None:
        for variable, value in self._copies:
            variable.assign(value)

    def share(self, source: int | None, done: Sequence[int], changes: bool) -> None:
        """As of `State`."""
        if source is not None:
            weights.broadcast(self._kept(), source)

    def _kept(self) -> list[Any]:
        groups = state.groups_of(self._model)
        return [v for name, variables in groups.items() if name not in ("optimizer", "metrics") for v in variables]


def surviving(name: str, call: Callable[[], Any], data: Any = None, kept: InferenceState | None = None) -> Any:
    """The result of a call, which ranks that are left make again. Collective.

    Args:
        name: of the method.
        call: returns what `collectives.broadcast_object` takes.
        data: the `x` of the call; None if it takes no data.
        kept: restores what the call changes in the model. The call itself has to call `note`. None: it changes nothing.

    Raises:
        UnsupportedError: a rank was lost, and the data cannot be read again.
    """
    if not generations.is_elastic() or generations.is_newcomer() or recovery.is_running():
        return call()

    def again() -> Any:
        if isinstance(data, Iterator):
            raise UnsupportedError(
                f"--elastic: a rank was lost in {name}, whose data is an iterator, and what it has given cannot be had again: "
                "give it a dataset, arrays, or a keras.utils.PyDataset"
            )
        return call()

    undo = None if kept is None else kept.put_back
    if operations.has_stage:
        return operations.run(call, again, undo, changes=kept is not None)
    with operations.stage(kept or NoState()):
        result = operations.run(call, again, undo, changes=kept is not None)
        if kept is not None:  # a rank that goes on has seen all of them finish the call
            operations.run(collectives.barrier)
        return result
