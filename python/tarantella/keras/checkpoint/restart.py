"""The training of an earlier start of the script: its newest good checkpoint, known to all ranks and put back on all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarantella import collectives, runtime, settings
from tarantella.errors import InvalidArgumentError
from tarantella.keras.checkpoint import callback_states, layout, lock, randomness, state
from tarantella.keras.checkpoint.folder import Folder
from tarantella.keras.checkpoint.position import Position


@dataclass(frozen=True)
class Beginning:
    """The random generators when a `fit` began for the first time, before it was restarted."""

    seed: int | None
    """TensorFlow's global seed."""
    alike: bool
    """Whether the generators of Python and NumPy were the same on all ranks."""
    random: dict[str, Any]

    def restore_generators(self, states: dict[str, Any]) -> None:
        """Gives the generators these states. Python's and NumPy's go on alone on each rank where they were not alike."""
        randomness.restore(states, python=self.alike or runtime.is_master_rank())


class StoredTraining:
    """The content of the newest good checkpoint.

    Args:
        tree: all of it but the variables.
        variables: those of the model, on the master, until they are put back.
    """

    def __init__(self, tree: dict[str, Any], variables: state.Stored | None) -> None:
        self._tree, self._variables = tree, variables
        self.position = Position(**tree["position"])
        self.steps: int | None = tree["fit"]["steps"]
        """The number of steps in an epoch, if it was known."""
        self.fingerprints: list[int] = tree["batches"]
        self.beginning = Beginning(tree["fit"]["seed"], tree["fit"]["alike"], tree["fit"]["random"])

    def check_initial_epoch(self, initial_epoch: int, folder: str) -> None:
        """Raises if the `fit` that wrote the checkpoint began with another epoch."""
        stored = self._tree["fit"]["initial_epoch"]
        if stored != initial_epoch:
            raise InvalidArgumentError(
                f"fit is to begin with initial_epoch={initial_epoch}, and the checkpoint in {folder} is of one with "
                f"initial_epoch={stored}: give the same, or begin anew with another folder"
            )

    def is_over(self, epochs: int) -> bool:
        """Whether all epochs were done already, or a callback had ended the training after an epoch."""
        stopped = bool(self._tree["stopped"])
        if stopped and self.position.epoch < epochs:
            runtime.logger.warning(
                "a callback has ended this training after epoch %d of %d: it does not go on; to train on, use another folder",
                self.position.epoch,
                epochs,
            )
        return stopped or self.position.epoch >= epochs

    def prepare_callbacks(self, callbacks: Sequence[Any]) -> None:
        """Prepares the files that callbacks will append to. Collective."""
        failure = None
        if runtime.is_master_rank():
            try:
                callback_states.prepare(callbacks, self._tree["callbacks"])
            except OSError as error:
                failure = error
        collectives.agree_on_failure(failure)

    def restore(self, model_state: state.ModelState, history: Any, callbacks: Sequence[Any]) -> None:
        """Gives the model's variables, history and callbacks the stored state. Collective."""
        failure: Exception | None = None
        difference = model_state.difference(self._variables, self._tree["common_seed"])
        if difference is not None:
            failure = InvalidArgumentError(f"{difference}: build the same model, or begin anew with another folder")
        collectives.agree_on_failure(failure)
        model_state.restore(self._variables, self._tree["common_seed"])
        self._variables = None
        history.history = self._tree["history"]["logs"]
        history.epoch = self._tree["history"]["epochs"]
        try:
            callback_states.restore(callbacks, self._tree["callbacks"])
        except Exception as error:  # in a set_state of the user's
            failure = error
        collectives.agree_on_failure(failure)

    def restore_generators(self) -> None:
        """Gives the random generators the stored states."""
        self.beginning.restore_generators(self._tree["random"])


def locked_folder(path: str, fit: int, keep: int) -> Folder:
    """The folder, which this rank has for itself. path, fit, keep: as for `Folder`. Raises if it cannot be had."""
    Path(path).mkdir(parents=True, exist_ok=True)
    seconds = min(lock.WAIT, settings.timeout() / 2)  # the other ranks wait meanwhile
    lock.acquire(Path(path), runtime.logger.warning, seconds)
    return Folder(Path(path), fit, keep, runtime.logger.warning)


def open_folder(path: str, fit: int, keep: int) -> tuple[Folder | None, StoredTraining | None]:
    """The folder, which only the master has and locks, and its newest good checkpoint; None if there is none. Collective.

    Args:
        path, fit, keep: as for `Folder`.
    """
    failure: Exception | None = None
    folder = found = stored = variables = None
    if runtime.is_master_rank():
        try:
            folder = locked_folder(path, fit, keep)
            found = folder.newest(layout.check)
        except Exception as error:
            failure = error
    collectives.agree_on_failure(failure)
    if found is not None:
        file, stored = found
        variables = stored.pop("variables")
        runtime.logger.info("the newest good checkpoint is %s", file)
    tree = collectives.broadcast_object(stored)
    return folder, None if tree is None else StoredTraining(tree, variables)
