"""`hvd.elastic`: state that is committed now and then, from which a job continues after a failure.

Ranks of Tarantella do not outlive the failure of another. The launcher starts all of them again (`--max-restarts`), and
`run_fn` gives the state of the last commit to all ranks.
"""

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

from tarantella import environment, runtime
from tarantella.errors import TarantellaError
from tarantella.horovod.common import basics
from tarantella.horovod.common.commits import CommitFile
from tarantella.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class State:
    """What a training continues from. Subclasses say how it is saved, restored and given to all ranks."""

    def __init__(self, bcast_object: Any = None, get_rank: Any = None) -> None:
        self._bcast_object = bcast_object
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._file = CommitFile()
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """These run after a restart, and before the function runs again, as to scale the learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Runs the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """Nothing to do: hosts change between starts only."""

    def check_host_updates(self) -> None:
        """Nothing to do: hosts change between starts only."""

    def commit(self) -> None:
        """Keeps the state: `restore` and a restarted job go back to it.

        Raises:
            TypeError: with --max-restarts, if a value can stand in no file (docs/horovod.md).
        """
        self.save()
        self._file.write(self.content)
        self._commits += 1
        self.check_host_updates()

    def times_committed(self) -> int:
        """How often this process has committed."""
        return self._commits

    def resume(self) -> None:
        """After a restart: takes the last commit of the start before, on all ranks. Collective."""
        if environment.restarts() == 0:
            return
        found = self._file.read()
        if found is None:
            runtime.logger.warning("hvd.elastic: nothing was committed before the restart: training begins anew")
        else:
            content, root = found
            if content is not None:
                self.restore_from(content)
            self.sync(root)
        self.on_reset()

    def content(self) -> Any:
        """What was saved, for a file."""
        raise NotImplementedError

    def restore_from(self, content: Any) -> None:
        """Goes back to what a file has."""
        raise NotImplementedError

    def save(self) -> None:
        """Keeps a copy in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the copy."""
        raise NotImplementedError

    def sync(self, root: int = 0) -> None:
        """Gives all ranks the state of root, and saves it. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Runs before the callbacks."""


class ObjectState(State):
    """Values of a script, as attributes: numbers, texts, arrays, and containers of them.

    Args:
        bcast_object: as `hvd.broadcast_object`.
        get_rank: as `hvd.rank`.
        kwargs: the attributes and their first values.
    """

    def __init__(self, bcast_object: Any, get_rank: Any, **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = copy.deepcopy(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def content(self) -> Any:
        return {"attributes": self._saved_state}

    def restore_from(self, content: Any) -> None:
        self._set(content["attributes"])

    def save(self) -> None:
        self._saved_state = copy.deepcopy({name: getattr(self, name) for name in self._saved_state})

    def restore(self) -> None:
        self._set(copy.deepcopy(self._saved_state))

    def sync(self, root: int = 0) -> None:
        if self._saved_state:
            self._set(self._bcast_object({name: getattr(self, name) for name in self._saved_state}, root))
        self.save()

    def _set(self, values: dict[str, Any]) -> None:
        if set(values) != set(self._saved_state):
            raise ValueError(
                f"hvd.elastic: the commit has the values {sorted(values)}, this script's state {sorted(self._saved_state)}: "
                "restart the script that has committed, or begin without its commits"
            )
        for name, value in values.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any] | None = None) -> Callable[..., Any]:
    """The function, whose first argument is a `State`, with that state the same on all ranks.

    After a restart it continues from the last commit. If it raises HorovodInternalError, it runs again from the last commit; if
    it raises HostsUpdatedInterrupt, from where it is. The failure of a rank ends the process: the launcher starts all anew.

    Args:
        reset: is called before it runs again.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        basics.size()  # or an error
        state.resume()
        skip_sync, failed_at = False, -1
        while True:
            if not skip_sync:
                state.sync()
            try:
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if isinstance(error.__cause__, TarantellaError) or failed_at == state.times_committed():
                    raise
                failed_at, skip_sync = state.times_committed(), False
                state.restore()
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = bool(interrupt.skip_sync)
            if reset is not None:
                reset()
            state.on_reset()

    return wrapper
