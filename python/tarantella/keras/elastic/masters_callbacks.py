"""The callbacks of a `fit` that run on the master alone: what they have come to is not lost with it.

Ranks go through the hooks of such a callback together, but for those of single batches in which it writes nothing: a hook is an
operation of `fit`, whose outcome is the state of the callback after it. So if the master is lost, either the hook is done and
the next master has its outcome, or the next master runs it itself. Between operations, each rank counts batches as the master's
callbacks do.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tarantella import collectives, generations, runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback_states


class MastersCallbacks:
    """Those of one `fit`.

    Args:
        callbacks: all of the user's.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._kinds = [type(callback).__name__ for callback in callbacks]
        self._own = dict(callback_states.named([one for one in callbacks if not placement.runs_on_all_ranks(one)]))
        self._states: dict[str, Any] = {}  # of those on the master, by their names
        self._shared: list[str] = []  # the names of those that all ranks have
        self._placed: Sequence[Any] = ()

    def begin(self, placed: Sequence[Any]) -> None:
        """Finds the callbacks that all ranks have, and warns of others. Collective.

        placed: as `placement.for_fit` has given them.
        """
        self._placed = placed
        given = [[name, str(getattr(one, "save_freq", None))] for name, one in self._own.items()]
        kinds, of_ranks = zip(*all_gather_object([self._kinds, given]), strict=True)
        alike = [one for one in of_ranks[0] if all(_of_kind(one, ranks) == _of_kind(one, of_ranks[0]) for ranks in of_ranks)]
        in_order = all([one for one in ranks if one in alike] == alike for ranks in of_ranks)
        self._share([name for name, _ in alike] if in_order else [])
        is_lone = any(kinds[0].count(kind) > own.count(kind) for kind in kinds[0] for own in kinds)
        if is_lone or len(self._shared) < len(of_ranks[0]):
            runtime.logger.warning(
                "--elastic: rank 0 has callbacks that another rank was not given, or in another order, so what they do may end "
                "with rank 0: give all ranks the same, as Tarantella runs those that write files on the master alone"
            )

    def note(self) -> None:
        """Notes the states of all. Collective."""

        def states() -> Any:  # with the master of then, if a rank is lost and this is made again
            own = self._own if runtime.is_master_rank() else {}
            return collectives.broadcast_object({name: callback_states.state_of(one) for name, one in own.items()})

        for name, state in collectives.as_one(states).items():
            self._note(name, state)

    def take_over(self) -> None:
        """This rank is the master now. Not collective."""
        states = {name: {**self._states.get(name, {}), **callback_states.remembered(one)} for name, one in self._own.items()}
        placement.take_over(self._placed)
        for name, callback in self._own.items():
            callback_states.give(callback, states[name])

    def progress(self) -> dict[str, Any]:
        """As of a `Part`."""
        return {"states": self._states, "shared": self._shared}

    def join(self, progress: dict[str, Any]) -> None:
        """As of a `Part`. Raises UnsupportedError if this rank lacks a callback that the others have."""
        missing = [name for name in progress["shared"] if name not in self._own]
        if missing:
            raise generations.refusal(f"fit has no callback {missing[0].partition(' ')[0]} here, or fewer than on the others")
        self._states = progress["states"]
        self._share(progress["shared"])

    def _share(self, names: list[str]) -> None:
        self._shared = names
        together = {id(self._own[name]): partial(self._run, name) for name in names}
        placement.run_together(self._placed, lambda callback: together.get(id(callback)))

    def _run(self, name: str, hook: Callable[[], None]) -> None:
        """Calls a hook, once on each master that does not know it done by itself."""
        callback = self._own[name]
        has_run = comes_again = False

        def run_here() -> None:
            nonlocal has_run
            if runtime.is_master_rank() and not has_run:
                has_run = True
                if comes_again:  # the last master may have written a line
                    callback_states.cut(callback, self._states.get(name, {}))
                hook()

        def operation() -> Any:
            nonlocal comes_again
            run_here()
            comes_again = True
            return collectives.broadcast_object(callback_states.state_of(callback) if runtime.is_master_rank() else None)

        state = collectives.as_one(operation)
        run_here()
        if state is not None:
            self._note(name, state)

    def _note(self, name: str, state: dict[str, Any]) -> None:
        self._states[name] = state
        if name in self._own and not runtime.is_master_rank():
            callback_states.give(self._own[name], state)


def _of_kind(one: list[str], among: list[list[str]]) -> list[list[str]]:
    kind = one[0].partition(" ")[0]
    return [other for other in among if other[0].partition(" ")[0] == kind]
