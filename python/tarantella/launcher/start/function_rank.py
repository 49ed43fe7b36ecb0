"""The program `function_rank FOLDER` (`own_program.py`): a rank of `tnt.launch`. It calls the function and leaves its value."""

import io
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from tarantella import variables
from tarantella.launcher.start import pickling
from tarantella.launcher.start.function import Folder


def main(argv: list[str]) -> int:
    """Returns 0. Raises the function's exception, after its traceback has been left for the caller, who shows it."""
    folder, rank = Folder(Path(argv[0])), int(os.environ[variables.RANK])
    shown = sys.excepthook
    sys.excepthook = lambda *_: None
    try:
        value = _pickled(_call(folder.function), rank)
    except SystemExit:
        sys.excepthook = shown
        raise
    except BaseException as error:
        folder.traceback(rank).write_text(_described(error), errors="backslashreplace")
        raise
    _leave(folder.value(rank), value)
    return 0


def _call(file: Path) -> Any:
    parts = io.BytesIO(file.read_bytes())
    sys.path[:], sys.argv[:] = pickle.load(parts)
    function, args, kwargs = (pickle.load(parts) for _ in range(3))
    return function(*args, **kwargs)


def _described(error: BaseException) -> str:
    """The traceback, from the function on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _pickled(value: Any, rank: int) -> bytes:
    try:
        return pickling.dumps(value)
    except Exception as error:
        raise TypeError(
            f"what the function returned on rank {rank} cannot be sent back: {type(error).__name__}: {error}: return numbers "
            "or NumPy arrays"
        ) from error


def _leave(file: Path, data: bytes) -> None:
    """The file is there when it is whole."""
    part = file.with_suffix(".part")
    part.write_bytes(data)
    part.rename(file)
