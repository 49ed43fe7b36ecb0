"""Files of models that scripts and callbacks write by Keras or TensorFlow itself, not by `tnt.Model`.

Every rank runs the script, so all would write one file at a time, and none would be whole. In a callback that runs on all ranks
the file is written once, and all ranks go on when it is there, as with `tnt.Model.save`. Elsewhere ranks may not meet: each
writes the file beside its place and renames it.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, files
from tarantella.keras.reduction.reducer import check_all

Writer = Callable[[str | None, Callable[[], Any]], None]

ADVICE = (
    "Every rank runs this: if all write to one place, let the master alone do it (if tnt.is_master_rank(): ..., or give fit "
    "tnt.callbacks.Callback(callback)), or put tnt.get_rank() into the path"
)

_together: Writer | None = None


@contextmanager
def written_together(write: Writer | None) -> Iterator[None]:
    """In this context files are written by this function of a path, None if each rank writes, and of what writes it here."""
    global _together
    before, _together = _together, write
    try:
        yield
    finally:
        _together = before


@functools.cache
def install() -> None:
    """Makes the functions that write models look who writes. Once in a process, and only in one of several ranks."""
    if runtime.get_size() == 1:
        return
    for owner, name in adapter.writing_functions():
        setattr(owner, name, _keras_writer(getattr(owner, name)))
    for owner, name in ((tf.train.CheckpointManager, "save"), (tf.train.Checkpoint, "save"), (tf.train.Checkpoint, "write")):
        setattr(owner, name, _tensorflow_writer(getattr(owner, name)))


def _keras_writer(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if files.is_writing() or not isinstance(filepath, (str, os.PathLike)):
            return original(model, filepath, *args, **kwargs)
        path = os.fspath(filepath)

        def write_to(place: str) -> Any:
            return original(model, place, *args, **kwargs)

        def write_here() -> None:
            check_all()
            if "://" in path:  # not in a file system
                write_to(path)
            else:
                files.replace(Path(path), write_to)

        return write_here() if _together is None else _together(path, write_here)

    return write


def _tensorflow_writer(original: Callable[..., Any]) -> Callable[..., Any]:
    """Its managers know the files that they wrote: each rank writes, one after another, where ranks meet."""

    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        if files.is_writing():
            return original(self, *args, **kwargs)
        written: list[Any] = []

        def write_here() -> None:
            with files.writing():
                written.append(original(self, *args, **kwargs))

        try:
            if _together is None:
                write_here()
            else:
                _together(None, write_here)
        except (OSError, tf.errors.OpError) as error:
            raise files.with_advice(error, ADVICE) from error
        return written[0]

    return save
