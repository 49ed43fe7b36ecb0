"""`Checkpoint`: the callback by which a user has the training stored."""

import os
from collections.abc import Sequence
from typing import Any

from tarantella.errors import InvalidArgumentError
from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.callback_placement import placement


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Stores the training in a folder, so that it continues from there when the script is started again.

    When `fit` of a `tnt.Model` begins, it restores the newest good checkpoint of the folder: weights, optimizer, random seeds,
    metrics of the epoch, `History`, the state of callbacks, and the position in the data. The training continues with the very
    next step, on any number of ranks, as if it had not been interrupted. A training that is over already does not begin again:
    `fit` restores its last state and returns its history.

    In a script with several calls of `fit`, the n-th call that uses the folder continues from checkpoints of the n-th call. So
    the script must make the same calls in the same order when it is started again. A call that ends with an exception does not
    count.

    The master writes the files while training goes on: it copies the values once, then a thread writes them. No other
    checkpoint begins meanwhile. Readers see complete files only. Each has a checksum; a damaged file is named in a warning and
    not used. If a file cannot be written, all ranks get an error at the next checkpoint or at the end of `fit`.

    Args:
        folder: a folder for checkpoints of this script. It is made if it does not exist. Other files in it are left alone.
        every_steps: the number of steps after which a checkpoint is written, counted through all epochs.
        every_seconds: the seconds after which one is written, at the end of a step.
        every_epochs: the number of epochs after which one is written; 1 if none of the three is given. In any case there is one
            at the end of `fit`, and one when a callback stops it.
        keep: the number of checkpoints of each `fit` that stay in the folder.
        sharded: True: each rank writes the variables that it holds, and no rank needs memory for all of them. The folder must
            be one that all ranks see. Any number of ranks reads it, with or without this argument.
        on_sigterm: whether SIGTERM, which schedulers send before they kill, has the training stored: all ranks agree on a step,
            store the training after it, and exit with code 143. False: SIGTERM ends the process at once, as it does where `fit`
            does not run. A handler that the script has set stays, in any case.

    Raises:
        InvalidArgumentError: a number is not positive. By `fit`: the model, the data or initial_epoch has changed since the
            checkpoint was written; there are several Checkpoints, or a BackupAndRestore beside one.

    Examples:
        >>> model.fit(dataset, epochs=90, callbacks=[tnt.callbacks.Checkpoint("checkpoints", every_steps=500)])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every_steps: int | None = None,
        every_seconds: float | None = None,
        every_epochs: int | None = None,
        keep: int = 2,
        sharded: bool = False,
        on_sigterm: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("every_steps", every_steps), ("every_epochs", every_epochs), ("keep", keep)):
            if (value is not None or name == "keep") and (not isinstance(value, int) or value < 1):
                raise InvalidArgumentError(f"{name} is {value!r}: use a positive integer")
        if every_seconds is not None and not (isinstance(every_seconds, (int, float)) and every_seconds > 0):
            raise InvalidArgumentError(f"every_seconds is {every_seconds!r}: use a positive number")
        self.folder = os.fspath(folder)
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.every_epochs = 1 if every_steps is every_seconds is every_epochs is None else every_epochs
        self.keep = keep
        self.sharded = bool(sharded)
        self.on_sigterm = bool(on_sigterm)

    def on_train_begin(self, logs: Any = None) -> None:
        """Not called by `fit` of a `tnt.Model`, which does not pass the Checkpoint on to Keras."""
        raise InvalidArgumentError("tnt.callbacks.Checkpoint works in fit of a tnt.Model: wrap the model, tnt.Model(model)")


def find(callbacks: Sequence[Any]) -> Checkpoint | None:
    """The Checkpoint among callbacks, if there is one.

    Raises:
        InvalidArgumentError: there are several, or there is another callback that restores.
    """
    found = [callback for callback in callbacks if isinstance(callback, Checkpoint)]
    if len(found) > 1:
        raise InvalidArgumentError(f"fit was given {len(found)} Checkpoints: give it one")
    if found and any(placement.restores(callback) for callback in callbacks):
        raise InvalidArgumentError("fit was given a Checkpoint and a BackupAndRestore, which both restore: give it one of them")
    return found[0] if found else None


def without(callbacks: Any) -> list[Any]:
    """The callbacks as a list, in whatever form Keras accepts them, without any Checkpoint."""
    return [callback for callback in adapter.callback_list(callbacks) if not isinstance(callback, Checkpoint)]


def described(settings: Checkpoint | None) -> dict[str, int | None]:
    """The settings that must be the same on all ranks, as numbers for `collectives.meet`."""
    if settings is None:
        return {"Checkpoint callbacks": 0}
    seconds = settings.every_seconds
    return {
        "Checkpoint callbacks": 1,
        "every_steps of Checkpoint": settings.every_steps,
        "every_seconds of Checkpoint, in ms": None if seconds is None else round(seconds * 1e3),
        "every_epochs of Checkpoint": settings.every_epochs,
        "sharded of Checkpoint": int(settings.sharded),
        "on_sigterm of Checkpoint": int(settings.on_sigterm),
    }
