"""Optimizers that change variables without the other ranks: in a training loop of a user's own, nothing else would notice.

The method of Keras' base optimizer by which all optimizers change variables asks here first, on several ranks, and so does a
script that assigns to trained variables without one, which is warned at most. What Tarantella itself applies
says so (`context.applying`). An optimizer that does not is

* refused before it changes anything, if the variables are a `tnt.Model`'s: its weights would differ between ranks;
* refused in a training step of a `tnt.Model`, which reduces the gradients of those optimizers alone that the model holds;
* a warning, once, if the variables are none of ours: ranks may train models of their own.

A loop that reduces gradients itself, by our tape or by `tnt.all_reduce`, gives them to a plain optimizer, and passes.
"""

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import environment, reduction, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import variable_class
from tarantella.keras.step import unwrapped_models

TWO_LINES = (
    "tape = tnt.DistributedGradientTape(tape), or optimizer = tnt.optimizers.Optimizer(optimizer), and let all ranks begin "
    "alike by tnt.broadcast_variables(model.variables)"
)


class _Loops:
    """The state of this process's loops."""

    def __init__(self) -> None:
        # the ids of variables whose gradients the script reduces: by our tape, and by tnt.all_reduce
        self.by_tape: set[int] = set()
        self.by_hand: set[int] = set()
        self.trained: set[int] = set()  # of which any tape has computed gradients
        self.elements_used = 0  # of those that tnt.all_reduce has reduced so far, those that optimizers have got
        self.warned: set[str] = set()  # kinds of changes


_loops = _Loops()


@functools.cache
def install() -> None:
    """Makes optimizers and loops ask before they change variables. Once in a process, and only in one of several ranks."""
    if environment.in_job():
        for optimizers in adapter.optimizer_classes():
            _ask_before(optimizers)
        _watch(_loops.trained, _remember_trained, _check_assignment)


def note_reduced(variables: Iterable[Any]) -> None:
    """Our tape reduces the gradients of these variables in a loop, and a plain optimizer may use them."""
    _remember(variables, _loops.by_tape)


def _remember(variables: Iterable[Any], ids: set[int]) -> None:
    for variable in variables:
        inner = adapter.unwrap(variable)
        if id(inner) not in ids:
            ids.add(id(inner))
            weakref.finalize(inner, ids.discard, id(inner)).atexit = False  # another object may get its id


def _ask_before(optimizers: type) -> None:
    hook = adapter.optimizer_hook()
    original = getattr(optimizers, hook)

    @functools.wraps(original)
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        @adapter.as_method
        def checked(grads: Any, trainable_variables: Any = None, **others: Any) -> Any:
            grads = list(grads)
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
                _check(self, trainable_variables)
            elif self.built:
                _check(self, adapter.variables_of_optimizer(self))
            with _inside_optimizer():
                return adapter.as_apply(functools.partial(original, self))(grads, trainable_variables, **others)

        return checked(*args, **kwargs)

    setattr(optimizers, hook, apply)


def _check(optimizer: Any, variables: Sequence[Any]) -> None:
    if context.is_applying() or not variables:
        return
    name = type(optimizer).__name__
    if context.in_model_step() or context.in_trial():
        raise UnsupportedError(
            f"an optimizer ({name}) changes {_listed(variables)} in a training step of tnt.Model, and the model does not hold "
            "it, so that its gradients are not reduced over ranks: let it be an attribute of the model, or stand in a list or "
            "dict that is one"
        )
    if unwrapped_models.is_internal_call():  # a callback of fit: ranks compare after it
        return
    inner = {id(adapter.unwrap(variable)): variable for variable in variables}
    if _are_reduced(inner):
        return
    for model in unwrapped_models.wrapped():
        theirs = [inner[i] for i in _ids(model) if i in inner]
        if theirs:
            raise UnsupportedError(
                f"an optimizer ({name}) is applied to {_listed(theirs)} of the tnt.Model {model.name!r} outside of its fit: "
                f"each rank would train on its own gradients, and the weights would drift apart. Change one line: {TWO_LINES}"
            )
    _warn("an optimizer", f"an optimizer ({name}) is applied to {_listed(variables)}", inner)


def _watches() -> bool:
    """Whether a gradient or an assignment now is that of a loop of the user's own."""
    own = context.is_applying() or context.in_model_step() or context.in_trial() or unwrapped_models.is_internal_call()
    return not own


def _remember_trained(variables: Sequence[Any]) -> None:
    if _watches():
        _remember(variables, _loops.trained)


def _check_assignment(method: str, variable: Any) -> None:
    """Warns at most: a script may assign the same values on all ranks."""
    inner = {id(variable): variable}
    if _watches() and not _are_reduced(inner):
        _warn("an assignment", f"a training loop calls {method} of {_listed([variable])}", inner)


def _warn(kind: str, said: str, variables: dict[int, Any]) -> None:
    own = {i for model in unwrapped_models.allowed() for i in _ids(model)}
    if kind not in _loops.warned and not variables.keys() <= own:
        _loops.warned.add(kind)
        runtime.logger.warning(
            "%s outside of tnt.Model's fit: each rank trains its own copy, nothing is synchronised. To train one model on all "
            "ranks, wrap it by tnt.Model(model) and call its fit; or, in a loop of your own, change one line: %s",
            said,
            TWO_LINES,
        )


def _are_reduced(variables: dict[int, Any]) -> bool:
    """Whether the script reduces the gradients: by our tape, or by `tnt.all_reduce` of as many elements as they have.

    The first step decides for those that follow: a function that was traced reduces in each call, and tells it only once.
    """
    if variables.keys() <= _loops.by_tape:
        return True
    count = sum(int(np.prod(variable.shape, dtype=np.int64)) for variable in variables.values())
    unused = reduction.elements_reduced() - _loops.elements_used
    _loops.elements_used += min(count, unused)
    if unused >= count:
        _remember(variables.values(), _loops.by_hand)
    return variables.keys() <= _loops.by_hand


def _ids(model: Any) -> list[int]:
    try:
        return [id(adapter.unwrap(variable)) for variable in adapter.weights(model)]
    except ValueError:  # legacy Keras has no list of weights before a model is built
        return []


def _listed(variables: Sequence[Any]) -> str:
    others = len(variables) - 1
    return adapter.path(variables[0]) + (f" and {others} other variable{'s' if others > 1 else ''}" if others else "")


# ------------------------------------------------------------------------------------------------------------------ assignments

# A tape of TensorFlow's tells which variables are trained. A change of one of them outside of an optimizer is a step without
# one: `v.assign_sub(rate * gradient)`.


_in_optimizers = 0
_LIBRARIES = ("horovod", "keras", "tarantella", "tensorflow", "tf_keras")
_PASSED = ("keras.src.backend.", "tensorflow.python.autograph.", "tensorflow.python.util.")
"""Modules of these that stand between a script and the method that it calls: Keras' variables, converted functions."""


def _watch(trained: set[int], remember: Callable[[Sequence[Any]], None], check: Callable[[str, Any], None]) -> None:
    """Watches tapes and assignments from now on. Once in a process.

    Args:
        trained: the ids of variables of which a tape has computed gradients.
        remember: adds variables to them.
        check: is called before such a variable changes, with the name of the method.
    """
    taken, variables = tf.GradientTape.gradient, variable_class()

    @functools.wraps(taken)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        remember([source for source in tf.nest.flatten(sources) if isinstance(adapter.unwrap(source), variables)])
        return taken(self, target, sources, *args, **kwargs)

    tf.GradientTape.gradient = gradient
    for name in ("assign", "assign_add", "assign_sub"):
        setattr(variables, name, _asking(name, getattr(variables, name), trained, check))


def _asking(name: str, original: Any, trained: set[int], check: Callable[[str, Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_optimizers == 0 and id(self) in trained and _is_called_by_a_script():
            check(name, self)
        return original(self, *args, **kwargs)

    return assign


def _is_called_by_a_script() -> bool:
    """Whether no method of Keras, TensorFlow or ours assigns: `set_weights`, the reading of a file, a broadcast."""
    modules = _callers(inspect.currentframe())
    outside = next((module for module in modules if module != __name__ and not module.startswith(_PASSED)), "")
    return outside.partition(".")[0] not in _LIBRARIES


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back


@contextmanager
def _inside_optimizer() -> Iterator[None]:
    """An optimizer, which has asked, changes variables in this context."""
    global _in_optimizers
    _in_optimizers += 1
    try:
        yield
    finally:
        _in_optimizers -= 1
