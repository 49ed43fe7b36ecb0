"""Methods of `tnt.Model` beside `fit` that survive the loss of ranks: those that are left make the whole call again.

They leave nothing behind but their results. In a callback of `fit` they are operations of that `fit`.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from tarantella import generations, recovery
from tarantella.errors import UnsupportedError
from tarantella.keras.elastic.operations import NoState, operations


def surviving(name: str, call: Callable[[], Any], data: Any = None) -> Any:
    """The result of a call, which ranks that are left make again. Collective.

    Args:
        name: of the method.
        call: returns what `collectives.broadcast_object` takes.
        data: the `x` of the call; None if it takes no data.

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

    with nullcontext() if operations.has_stage else operations.stage(NoState()):
        return operations.run(call, again)
