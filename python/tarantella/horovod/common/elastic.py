"""`hvd.elastic`: state that is committed now and then, from which a job continues after a failure.

With ``tarantella --elastic`` the ranks that are left go on with it (`tarantella.recovery`). Else the launcher starts all of
them again (`--max-restarts`), and `run_fn` gives the state of the last commit to all ranks.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tarantella import environment, generations, recovery, runtime
from tarantella.errors import AbortedError, TarantellaError
from tarantella.horovod.common import basics
from tarantella.horovod.common.commits import CommitFile
from tarantella.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class State(recovery.State):
    """What a training continues from. Subclasses say how it is saved, restored and given to all ranks."""

    def __init__(self, bcast_object: Any = None, get_rank: Any = None) -> None:
        self._bcast_object = bcast_object
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._file = CommitFile()

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """These run after a restart or loss, and before the function runs again, as to scale the learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Runs the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """Nothing to do: rank 0 asks the launcher."""

    def check_host_updates(self) -> None:
        """Lets newcomers join. Raises HostsUpdatedInterrupt if there are any, on the rank that has seen it first."""
        try:
            self.let_in()
        except AbortedError as error:
            raise HostsUpdatedInterrupt() from error

    def commit(self) -> None:
        """Keeps the state: `restore`, the ranks that are left, and a restarted job go back to it.

        Raises:
            TypeError: with --max-restarts, if a value can stand in no file (docs/horovod.md). UnsupportedError: with
                --max-restarts or --elastic, if ``backward_passes_per_step`` does not divide the number of steps.
        """
        self.refuse_parts()
        self.save()
        self._file.write(self.content)
        self.commits += 1
        self.check_host_updates()

    def resume(self) -> None:
        """After a restart: takes the last commit of the start before, on all ranks. Collective."""
        if environment.restarts() == 0 or generations.is_newcomer():
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

    def reset(self) -> None:
        """Runs before the callbacks."""


class ObjectState(State, recovery.Values):
    """Values of a script, as attributes: numbers, texts, arrays, and containers of them.

    Args:
        bcast_object: as `hvd.broadcast_object`.
        get_rank: as `hvd.rank`.
        kwargs: the attributes and their first values.
    """

    def __init__(self, bcast_object: Any, get_rank: Any, **kwargs: Any) -> None:
        State.__init__(self, bcast_object, get_rank)
        recovery.Values.__init__(self, **kwargs)

    def content(self) -> Any:
        return {"attributes": self._saved_state}

    def restore_from(self, content: Any) -> None:
        self.set_values(content["attributes"])

    def broadcast(self, values: dict[str, Any], root: int) -> Any:
        return self._bcast_object(values, root)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any] | None = None) -> Callable[..., Any]:
    """The function, whose first argument is a `State`, with that state the same on all ranks.

    If ranks are lost or join (--elastic), it runs again from the last commit, on those that there are. After a restart it
    continues from the last commit. If it raises HorovodInternalError by itself, it runs again from the last commit; if it
    raises HostsUpdatedInterrupt, from where it is.

    Args:
        reset: is called before it runs again.
    """

    def renew() -> None:
        basics.renew()
        if reset is not None:
            reset()

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        basics.size()  # or an error
        state.resume()
        return recovery.run(state, lambda: _until_it_returns(func, state, args, kwargs, reset), renew)

    return wrapper


def _until_it_returns(func: Callable[..., Any], state: Any, args: Any, kwargs: Any, reset: Callable[[], Any] | None) -> Any:
    """Calls the function, again if it asks for that by an exception of its own. All ranks do so alike."""
    failed_at = -1
    while True:
        try:
            return func(state, *args, **kwargs)
        except (HorovodInternalError, HostsUpdatedInterrupt) as error:
            if isinstance(error.__context__, TarantellaError):  # ranks were lost, or join
                raise
            skip_sync = getattr(error, "skip_sync", False)
            if isinstance(error, HorovodInternalError):
                if failed_at == state.commits:
                    raise
                failed_at = state.commits
                state.restore()
        if reset is not None:
            reset()
        state.on_reset()
        if not skip_sync:
            state.sync()
