"""`hvd.join`: a rank without data takes part in the others' sums and steps until all ranks have joined.

The ranks that still train announce each reduction of gradients by the number of its reducer, before the first bucket is sent
(`announce`). A rank that has joined then takes part in this reduction with zeros, and joins again.
"""

import itertools
import re
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import InvalidArgumentError
from tarantella.horovod.common.process_sets import global_process_set
from tarantella.horovod.tensorflow import graphs
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.negotiation import eager
from tarantella.keras import adapter
from tarantella.keras.reduction import collectives
from tarantella.keras.reduction.reducer import Reducer
from tarantella.keras.reduction.sparse import SparseReducer

_TO_BE_MADE = 0  # the number of a reducer that the ranks are about to make: a rank that has joined cannot

_numbers: weakref.WeakKeyDictionary[Reducer | SparseReducer, int] = weakref.WeakKeyDictionary()
_counter = itertools.count(1)  # reducers are made on all ranks in the same order


def _forget() -> None:
    """Ranks of the next generation make their reducers anew."""
    global _counter
    _numbers.clear()
    _counter = itertools.count(1)


runtime.before_leaving(_forget)


def join() -> int:
    """This rank has no more data: it gives zeros to the others' sums until all ranks have joined.

    It takes part in `allreduce` with `Sum` and `Average`, and in the steps of the optimizer and the tape. An average still
    divides by all ranks. A rank must have made a step before it joins those of an optimizer or tape.

    Returns:
        The rank that was the last to join.

    Raises:
        HorovodInternalError: the other ranks call something else, or reduce gradients for the first time.
    """
    graphs.refuse("hvd.join", "let all ranks run equally many steps")
    met = 0
    while True:
        with as_horovod():
            last, number, met = _joined(met)
            if number == 0:  # all have joined
                return last
            _take_part(number)


def _joined(met: int) -> list[int]:
    return [int(x) for x in eager("join", "ranks", None, global_process_set, lambda: collectives.join(met))]


def label(variable: Any) -> str:
    """The variable's name for the other ranks. Keras numbers the layers that a process makes, and ranks may have made
    different numbers of them, as rank 0 of a file.
    """
    return re.sub(r"_\d+(?=/|$)", "", adapter.path(variable))


def number(reducer: Reducer | SparseReducer) -> None:
    """Gives a new reducer its number."""
    _numbers[reducer] = next(_counter)


def announce(reducer: Reducer | SparseReducer, variables: Sequence[Any], grads: Sequence[Any]) -> None:
    """Tells the ranks that have joined that a step of the reducer follows. Collective.

    In a graph this waits for the gradient that backward makes first, if variables are in the order of their use: a step for
    which there are no data announces nothing.
    """
    first = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads if grad is not None][-1:]
    with tf.control_dependencies(first):
        _meet(_numbers[reducer], variables)


def announce_new(variables: Sequence[Any]) -> None:
    """Fails if a rank has joined: a reducer is about to be made for these variables' gradients. Collective."""
    with tf.init_scope():
        _meet(_TO_BE_MADE, variables)


def _meet(number: int, variables: Sequence[Any]) -> None:
    text = repr(label(variables[0])) + (f" and {len(variables) - 1} more" if len(variables) > 1 else "")
    with as_horovod():
        eager("step", f"{number}: {text}", None, global_process_set, lambda: collectives.meet(number, text))


def _take_part(number: int) -> None:
    reducer = next((reducer for reducer, own in _numbers.items() if own == number), None)
    if reducer is None:
        raise InvalidArgumentError(
            "hvd.join: the other ranks train on, and this rank has dropped its model: keep it until join returns"
        )
    reducer.take_part()
