"""The ranks on which each callback runs: Keras' own where they belong, a user's on all, or where `Callback` says.

Logs are those of the global batch on every rank, so a callback that decides by logs decides the same everywhere. A callback
that writes files does so on the master. The user's list and callbacks stay as they are: Keras gets a stand-in for each.
"""

import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, files
from tarantella.keras.adapter import keras
from tarantella.keras.callback_placement import model_files
from tarantella.keras.callback_placement.agreement import (
    BATCH_HOOKS,
    HOOKS,
    OUTER_HOOKS,
    AfterCallbacks,
    Agreement,
    BeforeCallbacks,
)
from tarantella.keras.reduction.reducer import check_all
from tarantella.keras.step.hooks import StepHooks
from tarantella.keras.step.patch import patched
from tarantella.settings import on_all_ranks

Together = Callable[[Callable[[], None]], None]
"""Calls the hook of a callback that runs on the master alone, and gives all ranks what has come of it. Collective."""

ON_ALL_RANKS = "_tnt_run_on_all_ranks"  # attribute of the classes that `Callback` makes

_DECIDE = adapter.callback_kinds(
    "EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau", "SwapEMAWeights", "TerminateOnNaN"
)
_WRITE = adapter.callback_kinds(
    "BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard"
)
_SHOW = adapter.callback_kinds("History", "ProgbarLogger")  # Keras looks for them in its list
_SAVE = adapter.callback_kinds("BackupAndRestore", "ModelCheckpoint")
_RESTORE = adapter.callback_kinds("BackupAndRestore")
_WHOLE_STATE = adapter.callback_kinds("OrbaxCheckpoint", "SwapEMAWeights")
_REFUSED = adapter.callback_kinds("BaseLogger")
_SCHEDULE = adapter.callback_kinds("LearningRateScheduler")
_LOG: Any = adapter.callback_kinds("CSVLogger")
_TENSORBOARD = adapter.callback_kinds("TensorBoard")


def must_decide_everywhere(callback: Any) -> bool:
    """Whether it is one of Keras' that change the course of the training."""
    return isinstance(callback, _DECIDE)


def restores(callback: Any) -> bool:
    """Whether it restores an earlier state of the training."""
    return isinstance(callback, _RESTORE)


def refuse_unsupported(callbacks: Any, shard_optimizer: bool = False) -> None:
    """Raises ValueError or UnsupportedError if one of the callbacks, as Keras takes them, cannot run in `fit`.

    shard_optimizer: whether the optimizer's state is spread over ranks.
    """
    for callback in adapter.callback_list(callbacks) if shard_optimizer else ():
        if isinstance(callback, _WHOLE_STATE):
            raise UnsupportedError(
                f"{type(callback).__name__} changes or reads the optimizer's whole state at once, which no rank has with "
                "shard_optimizer=True: leave one of them out"
            )
    for callback in adapter.callback_list(callbacks):
        if isinstance(callback, _REFUSED):
            raise ValueError(
                f"cannot run {type(callback).__name__}: Keras does not tell it the metrics' names any more. Leave it out: all "
                "callbacks get the means over an epoch that it would compute"
            )


def for_fit(callbacks: Any, hooks: StepHooks, first: Sequence[Any] = ()) -> list[Any]:
    """The callbacks for Keras' `fit`. Collective.

    Args:
        callbacks: as Keras takes them.
        hooks: the model's.
        first: internal callbacks that stand before all others.
    """
    stand_ins, agreement = _stand_ins(adapter.callback_list(callbacks), hooks)
    return [*first, BeforeCallbacks(agreement), *stand_ins, AfterCallbacks(agreement)]


def take_over(callbacks: Iterable[Any]) -> None:
    """This rank is the master now, as those before it were lost: it runs the master's callbacks of a `fit` that has begun.

    callbacks: as `for_fit` has given them. CSVLogger goes on with the file that is there.
    """
    for callback in callbacks:
        if isinstance(callback, _StandIn):
            callback.take_over()


def run_together(callbacks: Iterable[Any], together: Callable[[Any], Together | None]) -> None:
    """Ranks go through the hooks of the master's callbacks together.

    Args:
        callbacks: as `for_fit` has given them.
        together: gives the function that calls the hooks of a callback on all ranks; None: the master calls them alone.
    """
    for callback in callbacks:
        if isinstance(callback, _StandIn):
            callback.run_together(together)


def for_evaluate(callbacks: Any) -> list[Any]:
    """The callbacks for Keras' `evaluate`. Collective."""
    stand_ins, agreement = _stand_ins(adapter.callback_list(callbacks))
    return [*stand_ins, AfterCallbacks(agreement)]


def for_predict(callbacks: Any) -> list[Any]:
    """The callbacks for Keras' `predict`. Not collective: an exception of a callback stays on its rank."""
    return [_stand_in(callback, None) for callback in adapter.callback_list(callbacks)]


def _stand_ins(callbacks: list[Any], hooks: StepHooks | None = None) -> tuple[list[Any], Agreement]:
    may_fail = {hook for callback in callbacks for hook in _may_fail(callback)}
    may_change = {hook for callback in callbacks for hook in overridden(callback) if not _is_known(callback)}
    is_whole = hooks is None or hooks.holds_all_weights
    if not is_whole:
        may_change = set()  # each rank has weights of its own
    if callbacks:
        may_fail |= {"on_train_begin", "on_test_begin"}  # set_model and set_params come before, and can fail
    is_same = hooks is not None and hooks.reproducible
    restoring = any(restores(callback) for callback in callbacks)
    served = None if hooks is None else hooks.served
    agreement = Agreement(may_fail, may_change, restoring, is_same=is_same, is_whole=is_whole, served=served)
    for callback in callbacks:
        if hooks is not None and hasattr(callback, "tnt_stats"):
            callback.tnt_stats = hooks.reducers.stats
    return [_stand_in(callback, agreement, served) for callback in callbacks], agreement


def _kind(callback: Any) -> type:
    """The callback's class, without what `Callback` has made of it."""
    kind: type = type(callback)
    return kind.__bases__[0] if ON_ALL_RANKS in vars(kind) else kind


def _is_known(callback: Any) -> bool:
    """Whether its class is one of Keras' or Tarantella's own, whose hooks are known."""
    return _kind(callback) in (*_DECIDE, *_WRITE, *_SHOW) or getattr(_kind(callback), "tnt_decides_alike", False)


def _may_fail(callback: Any) -> set[str]:
    """The hooks in which it may raise, stop the training or set another learning rate on one rank only."""
    if not _is_known(callback):
        return overridden(callback)
    if isinstance(callback, _SCHEDULE):
        return {"on_epoch_begin"}  # the schedule is a function of the user's
    if isinstance(callback, _WRITE):
        by_batch = isinstance(callback, _SAVE) and getattr(callback, "save_freq", "epoch") != "epoch"
        return overridden(callback) - (set() if by_batch else {*BATCH_HOOKS})
    return set()


def overridden(callback: Any) -> set[str]:
    """The hooks in which a callback does something."""
    plain = keras.callbacks.Callback
    aliases = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}

    def has(hook: str) -> bool:
        return hook in vars(callback) or getattr(type(callback), hook, None) is not getattr(plain, hook)

    return {hook for hook in HOOKS if has(hook) or (hook in aliases and has(aliases[hook]))}


def runs_here(callback: Any) -> bool:
    """Whether it runs on this rank."""
    return runs_on_all_ranks(callback) or runtime.is_master_rank()


def runs_on_all_ranks(callback: Any) -> bool:
    """Whether it runs on all ranks, not on the master alone."""
    on_all = getattr(type(callback), ON_ALL_RANKS, None)
    if on_all is None:
        on_all = not isinstance(callback, _WRITE) or (isinstance(callback, _TENSORBOARD) and on_all_ranks("tensorboard"))
    return bool(on_all)


def _stand_in(callback: Any, agreement: Agreement | None, served: Any = None) -> Any:
    if isinstance(callback, _SHOW):
        return callback
    return _StandIn(callback, agreement, served)


class _StandIn(keras.callbacks.Callback):  # type: ignore[misc]
    """Runs a callback if it belongs on this rank, and keeps its exceptions until the ranks agree."""

    def __init__(
        self, callback: Any, agreement: Agreement | None, served: Callable[[], AbstractContextManager[None]] | None
    ) -> None:
        super().__init__()
        self._callback = callback
        self._agreement = agreement
        self._here = runs_here(callback)
        # what has begun, and not ended, while the callback runs elsewhere: the hook of each beginning, and its arguments
        self._missed: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self._together: Together | None = None
        self._counters: dict[str, Callable[[int], bool]] = {}  # of batches, by hooks
        self._served = served  # the context in which other ranks answer the master about state that they hold
        self._hooks = overridden(callback)
        self._is_everywhere = runs_on_all_ranks(callback) and not _is_known(callback)
        self._alike = _is_known(callback) and not isinstance(callback, _WRITE)
        if self._here and isinstance(callback, _TENSORBOARD) and _runs_everywhere(callback):
            self._callback = _with_folders_of_rank(callback)

    def take_over(self) -> None:
        """This rank has become the master."""
        if self._here or not runs_here(self._callback):
            return
        self._here = True
        if isinstance(self._callback, _LOG) and "on_train" in self._missed:
            self._callback.append = True
        if self.model is None:  # Keras gives it later
            return
        with self._beginning_late():
            self.set_params(self.params)
            self.set_model(self.model)
            for hook, arguments in list(self._missed.values()):
                self._run(hook, hook, *arguments)

    @contextmanager
    def _beginning_late(self) -> Iterator[None]:
        """In this context the callback begins, and the model stays as it is on all ranks."""
        is_harmless = _is_known(self._callback) and not restores(self._callback)
        if is_harmless or self.model is None or self._agreement is None or not self._agreement.has_begun:
            yield
            return
        variables = [*adapter.weights(self.model), *adapter.optimizer_variables(self.model)]
        before = [variable.numpy() for variable in variables]
        with adapter.without_restoring(self._callback) if restores(self._callback) else contextlib.nullcontext():
            yield
        pairs = zip(variables, before, strict=True)
        changed = [(v, value) for v, value in pairs if v.numpy().tobytes() != value.tobytes()]
        for variable, value in changed:
            adapter.unwrap(variable).assign(value)
        if changed:
            runtime.logger.warning(
                "%s has changed variables of the model as it began on the new rank 0: they have their values again",
                _kind(self._callback).__name__,
            )

    def run_together(self, together: Callable[[Any], Together | None]) -> None:
        """As `run_together` says."""
        self._together = None if runs_on_all_ranks(self._callback) else together(self._callback)
        found = {hook: adapter.batch_counter(self._callback, hook) for hook in self._hooks}
        self._counters = {} if self._together is None else {hook: one for hook, one in found.items() if one is not None}

    def come_to(self, hook: str, *args: Any, **kwargs: Any) -> None:
        """Keras calls a hook."""
        run = functools.partial(self._run, hook, hook, *args, **kwargs)
        if self._together is None or self._agreement is None or hook not in self._hooks:
            run()
        elif hook in OUTER_HOOKS or self._counts(hook, *args, **kwargs):
            with self._agreement.meeting(self.model):
                self._together(run)
        else:
            run()

    def _counts(self, hook: str, batch: int, logs: Any = None) -> bool:
        """Counts a batch on a rank on which the callback does not run. Returns whether it writes a file now, on the master."""
        if hook not in self._counters:
            return False
        before = dict(vars(self._callback))
        is_due = self._counters[hook](batch)
        if is_due or self._here:
            vars(self._callback).update(before)
        return is_due

    def set_params(self, params: Any) -> None:
        """Keras gives the arguments of `fit`."""
        super().set_params(params)
        self._run("on_train_begin", "set_params", params)

    def set_model(self, model: Any) -> None:
        """Keras gives the model that is trained."""
        super().set_model(model)
        self._run("on_train_begin", "set_model", model)

    def _run(self, hook: str, method: str, *args: Any, **kwargs: Any) -> None:
        if self._served is None or method not in self._hooks or runs_on_all_ranks(self._callback):
            self._run_here(hook, method, *args, **kwargs)
            return
        with self._served():
            self._run_here(hook, method, *args, **kwargs)

    def _run_here(self, hook: str, method: str, *args: Any, **kwargs: Any) -> None:
        if not self._here or (self._agreement is not None and self._agreement.failed):
            return
        try:
            with self._quiet(), self._atomic_files(), self._with_other_ranks(hook):
                getattr(self._callback, method)(*args, **kwargs)
        except Exception as raised:
            error = files.with_advice(raised, model_files.ADVICE) if self._is_everywhere else raised
            if self._agreement is None or self._alike:
                raise
            if not self._agreement.keep(hook, error):
                runtime.world().abort(f"callback {_kind(self._callback).__name__} raised {type(error).__name__}: {error}")
                raise error from raised

    def _quiet(self) -> contextlib.AbstractContextManager[Any]:
        """All ranks make the decisions of Keras' own callbacks, and the master alone prints them."""
        if not must_decide_everywhere(self._callback) or runtime.shows_output():
            return contextlib.nullcontext()
        return contextlib.redirect_stdout(io.StringIO())

    @contextmanager
    def _with_other_ranks(self, hook: str) -> Iterator[None]:
        """In this context the callback writes files together with those of other ranks, if it runs on all."""
        agreement, model = self._agreement, self.model
        if not self._is_everywhere or agreement is None or not agreement.agrees_after(hook) or runtime.get_size() == 1:
            yield
            return
        writer = functools.partial(agreement.write, model)
        with model_files.written_together(writer), collectives.preceded(lambda: agreement.before_collective(model)):
            yield

    def _atomic_files(self) -> contextlib.AbstractContextManager[None]:
        if not isinstance(self._callback, _SAVE) or self.model is None:
            return contextlib.nullcontext()
        return _replacing_files(self._callback, self.model)


def _running(hook: str) -> Callable[..., None]:
    def run(self: _StandIn, *args: Any, **kwargs: Any) -> None:
        self.come_to(hook, *args, **kwargs)
        subject, _, moment = hook.rpartition("_")
        if moment == "begin":
            self._missed[subject] = hook, args
        else:
            self._missed.pop(subject, None)

    return run


for _hook in (*HOOKS, "on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"):
    setattr(_StandIn, _hook, _running(_hook))


def _runs_everywhere(callback: Any) -> bool:
    return bool(getattr(type(callback), ON_ALL_RANKS, on_all_ranks("tensorboard")))


def _with_folders_of_rank(tensorboard: Any) -> Any:
    """The same TensorBoard callback with the same state, which writes to a folder of this rank inside each of its own."""
    rank = f"rank_{runtime.get_rank()}"

    def inside(name: str) -> property:
        return property(
            lambda self: os.path.join(self.__dict__[name], rank), lambda self, folder: self.__dict__.update({name: folder})
        )

    folders = {name: inside(name) for name in adapter.tensorboard_folders()}
    return sharing_state(tensorboard, folders)


def sharing_state(callback: Any, attributes: dict[str, Any]) -> Any:
    """Another view of a callback: an object with the same state, whose class is derived from the callback's."""
    kind = type(callback)
    view: Any = object.__new__(type(kind.__name__, (kind,), {"__module__": kind.__module__, **attributes}))
    view.__dict__ = callback.__dict__
    return view


def _replacing_files(callback: Any, model: Any) -> AbstractContextManager[None]:
    """The context in which Keras' callbacks write a model's files beside their place, and rename them when they are whole."""

    def atomic(save: Callable[..., Any]) -> Callable[..., Any]:
        def save_and_rename(filepath: Any, *args: Any, **kwargs: Any) -> None:
            check_all()
            path = os.fspath(filepath)
            if not path.endswith((".keras", ".h5")) or "://" in path:  # a folder, or not in a file system
                save(filepath, *args, **kwargs)
            else:
                files.replace(Path(path), lambda beside: save(beside, *args, **kwargs))

        return save_and_rename

    writers: list[tuple[Any, str, Any]] = [(model, name, atomic(getattr(model, name))) for name in ("save", "save_weights")]
    if restores(callback):
        writers.extend(adapter.backup_writer(callback, files.replace))
    return patched(lambda: writers)
