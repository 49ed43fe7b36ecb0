"""Our errors as the classes that scripts for Horovod catch; the sentence stays."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella import generations
from tarantella.errors import InvalidArgumentError, MismatchError, TarantellaError, UnsupportedError
from tarantella.horovod.common.exceptions import HorovodInternalError


class CallsDifferError(HorovodInternalError, tf.errors.FailedPreconditionError):  # type: ignore[misc]
    """The ranks called different things, or with tensors that do not fit each other."""

    def __init__(self, message: str, *_: Any) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)


class WrongArgumentError(HorovodInternalError, ValueError, tf.errors.InvalidArgumentError):  # type: ignore[misc]
    """The call cannot be made: another rank, other splits, a process set without this rank."""

    def __init__(self, message: str, *_: Any) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


@contextmanager
def as_horovod() -> Iterator[None]:
    """In this context errors of Tarantella become Horovod's. Ranks communicate in it."""
    generations.refuse_newcomer("a collective of Horovod's names")
    try:
        yield
    except MismatchError as error:
        raise CallsDifferError(str(error)) from error
    except InvalidArgumentError as error:
        raise WrongArgumentError(str(error)) from error
    except UnsupportedError:
        raise
    except TarantellaError as error:
        raise HorovodInternalError(str(error)) from error
