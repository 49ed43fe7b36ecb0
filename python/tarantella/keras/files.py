"""Files and folders that the master writes once and puts in their place when they are complete, and that all ranks read."""

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime

_thread = threading.local()


@contextmanager
def writing() -> Iterator[None]:
    """In this context this thread writes a file for which it was decided which rank writes it, and where."""
    before, _thread.writes = is_writing(), True
    try:
        yield
    finally:
        _thread.writes = before


def is_writing() -> bool:
    """Whether this thread is inside of `writing`."""
    return getattr(_thread, "writes", False)


def write(
    filepath: Any,
    write_to: Callable[[str], Any],
    on_all_ranks: bool = False,
    context: AbstractContextManager[Any] = nullcontext(),  # noqa: B008  (it has no state)
) -> None:
    """Writes the file on the master, or on every rank, and lets all ranks go on when it is there. Collective.

    The file is written beside its place, synced and renamed: a reader sees the old file or the new one, even if the process
    is killed meanwhile.

    Args:
        filepath: the file's place.
        write_to: writes the file to the path that it is given (same name, in a folder beside it).
        context: every rank enters it, and the file is written there: the others may answer the master in it.

    Raises:
        The exception of `write_to`, on the rank that wrote; TarantellaError with its text on the others.
    """
    failure: BaseException | None = None
    with context:
        if on_all_ranks or runtime.is_master_rank():
            try:
                replace(Path(os.fspath(filepath)), write_to)
            except Exception as error:
                failure = error
    collectives.agree_on_failure(failure)


def refuse_to_overwrite(filepath: Any, overwrite: bool = True, *others: Any, **options: Any) -> None:
    """Refuses what Keras' `save` and `save_weights` would ask on the terminal. Collective, unless overwrite is true.

    Raises:
        FileExistsError: ``overwrite=False``, and the file is there; TarantellaError on ranks that do not see it.
    """
    if overwrite:
        return
    found = [name for name in (os.fspath(filepath), f"{os.fspath(filepath)}.index") if os.path.exists(name)]
    collectives.agree_on_failure(
        FileExistsError(f"{found[0]} is there already, and overwrite=False: choose another name") if found else None
    )


def read(read_here: Callable[[], Any]) -> Any:
    """Reads on every rank, and lets all ranks go on when each has read: then one of them may delete the file. Collective.

    Raises:
        The exception of `read_here` on the ranks where it failed; TarantellaError with its text and rank on the others.
    """
    failure: BaseException | None = None
    result = None
    try:
        result = read_here()
    except Exception as error:
        failure = error
    collectives.agree_on_failure(failure)
    return result


def replace(path: Path, write_to: Callable[[str], Any]) -> None:
    """Writes a file or folder as `write` does, on this rank alone; or several files whose names begin alike."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with _errors_that_name(path, beside.name):
        beside.mkdir()
        _write_beside(path, beside, write_to)


def _write_beside(path: Path, beside: Path, write_to: Callable[[str], Any]) -> None:
    try:
        with writing():
            write_to(str(beside / path.name))
        for written in sorted(beside.rglob("*")):
            sync(written)
        # of a checkpoint of TensorFlow's, the files that name the others come last
        for made in sorted(beside.iterdir(), key=lambda file: (file.name == "checkpoint", file.suffix == ".index")):
            _move(made, path.with_name(made.name))
        sync(path.parent)
    finally:
        shutil.rmtree(beside)


@contextmanager
def _errors_that_name(path: Path, hidden: str) -> Iterator[None]:
    """In this context errors name the file that was asked for, and not the hidden folder in which it is written."""

    def shown(value: Any) -> Any:
        return value.replace(f"{hidden}{os.sep}", "").replace(hidden, path.name) if isinstance(value, str) else value

    try:
        yield
    except tf.errors.OpError as error:
        raise type(error)(error.node_def, error.op, shown(error.message)) from None
    except Exception as error:
        in_chain: BaseException | None = error
        while in_chain is not None:
            in_chain.args = tuple(shown(value) for value in in_chain.args)
            if isinstance(in_chain, OSError):
                for name in ("strerror", "filename", "filename2"):
                    if getattr(in_chain, name) is not None:  # one that was not given must not become None: it would be shown
                        setattr(in_chain, name, shown(getattr(in_chain, name)))
            in_chain = in_chain.__cause__ or in_chain.__context__
        raise


def with_advice(error: Exception, advice: str) -> Exception:
    """The error of a file or of TensorFlow, with a sentence at its end; any other error as it is."""
    if isinstance(error, tf.errors.OpError):
        kind: type[Exception] = type(error)
        return kind(error.node_def, error.op, f"{error.message}. {advice}")
    if isinstance(error, OSError) and error.strerror is not None:
        error.strerror = f"{error.strerror}. {advice}"
    elif isinstance(error, OSError):
        error.args = (". ".join([*map(str, error.args), advice]),)
    return error


def _move(made: Path, path: Path) -> None:
    """Renames it. No call replaces a folder that is not empty: the old one is moved away just before."""
    old = made.with_name(f"{made.name}.old")
    if path.is_dir():
        os.replace(path, old)
    try:
        os.replace(made, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise


def sync(path: Path) -> None:
    """Returns when the file, or the list of a folder's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
