"""Variables across ranks: broadcast at the start, compared by hash, averaged where ranks differ."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import collectives, generations, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter

_SAMPLE = 256


def check_variables(variables: Sequence[Any], what: str) -> None:
    """Raises if something is not a variable of Keras or TensorFlow."""
    for variable in variables:
        if not adapter.is_variable(variable):
            raise TypeError(f"{what} takes variables of Keras or TensorFlow, not {type(variable).__name__}")


def state_keys(paths: Sequence[str]) -> list[str]:
    """Names of an optimizer's variables with these paths: the same on all ranks, whatever the optimizers are named there.

    A path begins with the name of the optimizer, or with that of the one inside of it, or with both. Names may have a number at
    the end.
    """
    names = list(dict.fromkeys(path.partition("/")[0] for path in paths))
    found = []
    for path in paths:
        name, _, rest = path.partition("/")
        inner, _, rest_of_inner = rest.partition("/")
        found.append(f"{names.index(inner)}/{rest_of_inner}" if inner in names else f"{names.index(name)}/{rest}")
    return found


def broadcast(variables: Sequence[Any], root: int = 0, takes: bool = True) -> None:
    """Gives every rank the values of root's variables. Collective.

    In an elastic job a rank takes all of them or none: if root is lost meanwhile, another one has its number and gives its own.

    Args:
        variables: Keras or TensorFlow variables of any dtype; the same number and shapes on all ranks.
        takes: whether this rank takes them.
    """
    if runtime.get_size() == 1:
        return
    inner = [adapter.unwrap(variable) for variable in variables]
    if generations.is_elastic():  # with a copy of all
        values = collectives.as_one(lambda: [collectives.broadcast(variable.numpy(), root) for variable in inner])
    else:
        values = (collectives.broadcast(variable.numpy(), root) for variable in inner)
    for variable, value in zip(inner, values, strict=True):
        if takes and runtime.get_rank() != root:
            variable.assign(value)


def average(variables: Sequence[Any]) -> list[Any]:
    """Replaces each variable that differs between ranks by its mean over them, and returns these variables. Collective."""
    found = means(variables)
    for index, mean in found.items():
        adapter.unwrap(variables[index]).assign(mean)
    return [variables[index] for index in found]


def means(variables: Sequence[Any]) -> dict[int, NDArray[Any]]:
    """The mean over ranks of each variable that differs between them, by its index. Collective.

    The mean of equal numbers can differ from them in the last bit, so equal variables, such as a frozen layer's, have none.
    """
    changed = np.flatnonzero(_differs(variables).any(axis=0)).tolist()
    return {index: collectives.all_reduce(adapter.unwrap(variables[index]).numpy(), op="avg") for index in changed}


def compare(variables: Sequence[Any], when: str) -> None:
    """Checks by hash that all ranks hold the same bits. Collective.

    Args:
        variables: the variables to compare.
        when: ends the sentence of the error, such as ``"after the first step"``.

    Raises:
        MismatchError: on all ranks; names the ranks that differ from rank 0 and their first variable that does.
    """
    differs = _differs(variables)
    others = np.flatnonzero(differs.any(axis=1)).tolist()
    if not others:
        return
    first = variables[int(np.argmax(differs[others[0]]))]
    ranks = ", ".join(f"rank {rank}" for rank in others)
    raise MismatchError(
        f"the weights of {ranks} differ from rank 0's {when}; the first that differs is {adapter.path(first)}: "
        "something changed them on some ranks only"
    )


def sample(variables: Sequence[Any]) -> bytes:
    """A hash of some numbers of each variable: another one after a step of training, and cheap for large ones."""
    some = (_some_numbers(adapter.unwrap(variable).value()) for variable in variables)
    return hashlib.blake2b(b"".join(np.ascontiguousarray(array).tobytes() for array in some), digest_size=8).digest()


def _some_numbers(tensor: tf.Tensor) -> NDArray[Any]:
    step = tensor.shape.num_elements() // _SAMPLE
    numbers: NDArray[Any] = (tensor if step <= 1 else tf.reshape(tensor, [-1])[::step]).numpy()
    return numbers


def differing(variables: Sequence[Any]) -> list[Any]:
    """Those of the variables whose bits are not the same on all ranks. Collective, if there are any variables."""
    return [variables[index] for index in np.flatnonzero(_differs(variables).any(axis=0)).tolist()] if variables else []


def _differs(variables: Sequence[Any]) -> NDArray[np.bool_]:
    """Whether the bits of each variable on each rank differ from those on rank 0. Collective."""
    each = collectives.all_gather(_digests(variables))
    differs: NDArray[np.bool_] = (each != each[0]).any(axis=2)
    return differs


def _digests(variables: Sequence[Any]) -> NDArray[np.uint8]:
    arrays = (np.ascontiguousarray(adapter.unwrap(variable).value().numpy()) for variable in variables)
    digests = b"".join(hashlib.blake2b(array.tobytes(), digest_size=8).digest() for array in arrays)
    return np.frombuffer(digests, np.uint8).reshape(len(variables), 8)
