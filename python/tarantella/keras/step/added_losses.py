"""Losses that layers add by `add_loss` inside Keras' own training step: tried before the first step, like those of `compile`.

A model whose layers use `add_loss` is called on a few made-up samples, and on parts of them. An added sum over samples is
scaled in each step, so that the mean over ranks is the sum. One that couples samples is refused. Regularizers of Keras
need no trial: those of weights are the same on all ranks, and those of activities are divided by the number of samples.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, context
from tarantella.keras.step import batch_sums, made_up, step_run, trial, verdict
from tarantella.keras.step.batch_sums import BatchSums
from tarantella.keras.step.patch import Patch
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tarantella.keras.step.batch_sums import PartOfBatch
    from tarantella.keras.step.current_step import CurrentStep
    from tarantella.keras.step.losses import LossKinds
    from tarantella.keras.step.patch import Attribute
    from tarantella.keras.step.trial import Answer

PARTS = Parts(2, 1)
_Values = dict[tuple[int, int], Any]  # by the layer's id and the number of its call of add_loss


class AddedLosses:
    """The losses that the layers of a model add.

    Args:
        kinds: the findings are noted there.
    """

    def __init__(self, model: Any, kinds: LossKinds) -> None:
        self._model = model
        self._kinds = kinds
        self._tried: set[str] = set()
        self._said: dict[int, str] = {}  # of the losses that couple samples, by the layer's id
        self._calls: dict[int, int] = {}  # how often each layer has added a loss in this step, by the layer's id
        self._verdict = verdict.Verdict(verdict.WAYS_OUT_OF_STEP, "the mean of the ranks' losses is trained")

    # ------------------------------------------------------------------------------------------------------ the trial

    def run(self, name: str, batch_spec: Any) -> None:
        """Tries once what this step of Keras' own, ``"train_step"`` or ``"test_step"``, adds. Collective.

        Raises:
            MismatchError: a rank found something else.
        """
        if name in self._tried or adapter.has_own(self._model, name, "compute_loss"):
            return
        self._tried.add(name)
        training = name == "train_step"
        layers = {id(layer): layer for layer in adapter.layers_of(self._model) if _mentions_add_loss(layer)}
        if not layers:
            return
        found: dict[tuple[int, int], Kind] = {}
        try:
            values = self._values(layers, batch_spec, training)
            found = _kinds_of(values)
            if Kind.COUPLED in found.values() and self._kinds.may_use_sums and not adapter.is_jit_compiled(self._model):
                found = self._by_sums(layers, batch_spec, training) or found
        except (context.RefusedInTrial, NotComparable) as error:
            verdict.say_not_compared("what layers add by add_loss", error)
        except Exception as error:  # a layer may refuse made-up numbers in any way
            verdict.say_not_compared("what layers add by add_loss", f"{type(error).__name__} on made-up samples: {error}")
        for key, kind in found.items():
            name, (number, parts) = layers[key[0]].name, values[key]
            if kind is Kind.SUM:
                self._kinds.summed_added.add((training, *key))
                runtime.logger.info("the loss that the layer %r adds is a sum over samples: ranks add up their parts", name)
            elif kind is Kind.UNKNOWN:
                verdict.say_not_compared(f"the loss that the layer {name!r} adds", "it is zero or not finite")
            elif kind is Kind.COUPLED:
                self._said.setdefault(key[0], _couples(name, float(number[0]), [float(part[0]) for part in parts]))
        verdict.require_same("the trial of added losses", found.values())

    def _by_sums(self, layers: dict[int, Any], batch_spec: Any, training: bool) -> dict[tuple[int, int], Kind] | None:
        """What is found if all sums in the model are those of all samples; None if that is wrong."""
        sums = self._kinds.added_by_sums[training] = BatchSums("the model, whose layers add losses by add_loss,")
        try:
            found = _kinds_of(self._values(layers, batch_spec, training))
        except NotComparable:
            found = {}
        if not found or Kind.COUPLED in found.values() or not sums.settle():
            del self._kinds.added_by_sums[training]
            return None
        runtime.logger.info("what layers add by add_loss is made of sums over samples: ranks add up each of them")
        return found

    def check(self, is_divided: bool, answer: Answer) -> None:
        """Refuses losses that couple samples, or warns once if the user accepts it.

        Raises:
            UnsupportedError: they couple samples.
        """
        if self._said and is_divided:
            self._verdict.refuse([*self._said.values()], answer)

    def _values(self, layers: dict[int, Any], batch_spec: Any, training: bool) -> dict[tuple[int, int], tuple[Any, list[Any]]]:
        """The value of each loss for the whole, and those for the parts."""
        trial.check_dense(batch_spec)
        step_run.refuse_16_bits(self._model)
        batch, step = made_up.batch(PARTS.whole, batch_spec, made_up.numbers), trial.TrialStep(self._kinds)
        with trial.leaving_no_trace(step_run.state_of(self._model)):
            found = []
            for part, weight in zip((batch, *PARTS.of(batch)), (1.0, *PARTS.weights()), strict=True):
                with step.computing(weight):
                    found.append(self._values_of(layers, part, training, step))
        whole, *parts = found
        if any(part.keys() != whole.keys() for part in parts):
            raise NotComparable("not as many are added for any samples")
        return {key: (value, [part[key] for part in parts]) for key, value in whole.items()}

    def _values_of(self, layers: dict[int, Any], batch: Any, training: bool, step: PartOfBatch) -> _Values:
        found: _Values = {}
        x, _, _ = adapter.keras.utils.unpack_x_y_sample_weight(tf.nest.map_structure(trial.tensor, batch))
        own = self._hooks_of_sums(step, lambda: training)
        patch = Patch([*self._recorders(layers, found), *step_run.neutral(self._model), *own])
        patch.apply()
        try:
            self._model(x, training=training)
        finally:
            patch.revert()
        return found

    def _recorders(self, layers: dict[int, Any], found: _Values) -> Iterator[Attribute]:
        for layer in layers.values():
            calls = iter(range(1 << 30))

            def add_loss(loss: Any, *args: Any, layer: Any = layer, calls: Iterator[int] = calls, **kwargs: Any) -> None:
                tensors = [value for value in tf.nest.flatten(loss) if not callable(value)]
                found[id(layer), next(calls)] = np.array([sum(np.asarray(t, np.float64).sum() for t in tensors)])

            yield layer, "add_loss", tf.autograph.experimental.do_not_convert(add_loss)

    # ------------------------------------------------------------------------------------------------------ the steps

    def begin_step(self) -> None:
        """A step begins to be traced or run."""
        self._calls.clear()

    def hooks(self, step: CurrentStep) -> Iterator[Attribute]:
        """The `add_loss` of the layers that add sums."""
        yield from self._hooks_of_sums(step, lambda: step.is_training)
        summed = {layer for _, layer, _ in self._kinds.summed_added}
        for layer in adapter.layers_of(self._model):
            if id(layer) in summed:
                yield layer, "add_loss", self._scaled(layer, layer.add_loss, step)

    def _hooks_of_sums(self, step: PartOfBatch, is_training: Callable[[], bool]) -> Iterator[Attribute]:
        sums = self._kinds.added_by_sums
        if sums:
            yield from batch_sums.hooks(self._model, "call", lambda: sums.get(is_training()), step)

    def _scaled(self, layer: Any, original: Callable[..., Any], step: CurrentStep) -> Callable[..., Any]:
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def add_loss(loss: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._calls[id(layer)] = self._calls.get(id(layer), -1) + 1
            if (step.is_training, id(layer), place) not in self._kinds.summed_added or step.counts_alone():
                return original(loss, *args, **kwargs)
            weight = step.weight()

            def scaled(value: Any) -> Any:
                if callable(value):
                    return value
                tensor = tf.convert_to_tensor(value)
                return tensor * tf.cast(tf.math.divide_no_nan(tf.ones((), weight.dtype), weight), tensor.dtype)

            return original(tf.nest.map_structure(scaled, loss), *args, **kwargs)

        return add_loss  # type: ignore[no-any-return]


def _kinds_of(values: dict[tuple[int, int], tuple[Any, list[Any]]]) -> dict[tuple[int, int], Kind]:
    return {key: trial.compared(number, parts, PARTS.weights()) for key, (number, parts) in values.items()}


def _couples(name: str, whole: float, parts: list[float]) -> str:
    mean = sum(weight * part for weight, part in zip(PARTS.weights(), parts, strict=True))
    return (
        f"the loss that the layer {name!r} adds by add_loss couples the samples of a batch: of {PARTS.whole} made-up samples "
        f"it is {whole:.4g}, and the mean of its values of {PARTS.first} and {PARTS.second} of them, weighted by samples, is "
        f"{mean:.4g}"
    )


def _mentions_add_loss(layer: Any) -> bool:
    """Whether the class of a layer, as far as it is none of Keras', uses `add_loss`; or it stands for that of a model.

    A regularizer of activities that is none of Keras' adds its loss by the layer's `add_loss`.
    """
    regularizer = getattr(layer, "activity_regularizer", None)
    if type(layer).__name__ == "AddLoss" or (regularizer is not None and not adapter.is_builtin(regularizer)):
        return True
    for kind in type(layer).__mro__:
        if kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow", "builtins"):
            continue
        for value in vars(kind).values():
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if code is not None and "add_loss" in _names(code):
                return True
    return False


def _names(code: CodeType) -> set[str]:
    """The names of attributes that a function uses, and the functions inside it."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)
