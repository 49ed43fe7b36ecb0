"""Weights across ranks: the same at the start, compared by hash, BatchNormalization's averages brought together."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import collectives, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_variables(variables: Sequence[Any], what: str) -> None:
    """Raises if something is not a variable of Keras or TensorFlow."""
    for variable in variables:
        if not adapter.is_variable(variable):
            raise TypeError(f"{what} takes variables of Keras or TensorFlow, not {type(variable).__name__}")


def broadcast(variables: Sequence[Any], root: int = 0) -> None:
    """Gives every rank the values of root's variables. Collective.

    Args:
        variables: Keras or TensorFlow variables of any dtype; the same number and shapes on all ranks.
    """
    if runtime.get_size() == 1:
        return
    for variable in variables:
        inner = adapter.unwrap(variable)
        value = collectives.broadcast(inner.numpy(), root)
        if runtime.get_rank() != root:
            inner.assign(value)


def average(variables: Sequence[Any]) -> None:
    """Replaces each variable that differs between ranks by its mean over them. Collective."""
    for index, mean in means(variables).items():
        adapter.unwrap(variables[index]).assign(mean)


def means(variables: Sequence[Any]) -> dict[int, np.ndarray[Any, Any]]:
    """The mean over ranks of each variable that differs between them, by its index. Collective."""
    each = collectives.all_gather(_digests(variables))
    return {
        index: collectives.all_reduce(adapter.unwrap(variable).numpy(), op="avg")
        for index, variable in enumerate(variables)
        # a frozen layer's, say, do not differ: the mean of equal numbers may do so in the last bit
        if not np.all(each[:, index] == each[0, index])
    }


def compare(variables: Sequence[Any], when: str) -> None:
    """Checks by hash that all ranks hold the same bits. Collective.

    Args:
        variables: what to compare.
        when: ends the sentence of the error, such as ``"after the first step"``.

    Raises:
        MismatchError: on all ranks; names the ranks that differ from rank 0 and their first variable that does.
    """
    others = differing_ranks(variables)
    if not others:
        return
    digests = _digests(variables)
    each = collectives.all_gather(digests)
    first = next(i for i in range(len(variables)) if not np.array_equal(each[others[0]][i], each[0][i]))
    ranks = ", ".join(f"rank {rank}" for rank in others)
    raise MismatchError(
        f"the weights of {ranks} differ from rank 0's {when}; the first that differs is {adapter.path(variables[first])}: "
        "something changed them on some ranks only"
    )


def differing_ranks(variables: Sequence[Any]) -> list[int]:
    """The ranks whose variables have other bits than rank 0's. Collective."""
    whole = collectives.all_gather(_digest(_digests(variables)))
    return [rank for rank in range(len(whole)) if not np.array_equal(whole[rank], whole[0])]


def _digests(variables: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    digests = [_digest(adapter.unwrap(variable).numpy()) for variable in variables]
    return np.array(digests, np.uint8).reshape(len(variables), 8)


def _digest(array: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).digest(), np.uint8)
