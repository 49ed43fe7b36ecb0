"""Models of legacy Keras: how their variables are made and named."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common import building
from tarantella.keras.adapter.front_end import keras
from tarantella.keras.adapter.keras2.optimizers import build_optimizer


def is_compiled(model: Any) -> bool:
    """Whether the model knows its loss and its optimizer."""
    return bool(model._is_compiled)


# for each step, the loss containers of `compile` whose models have been built since
_built: dict[str, weakref.WeakSet[Any]] = {"train_step": weakref.WeakSet(), "test_step": weakref.WeakSet()}


@building.leaving_python_state
def build(model: Any, batch_spec: Any, step: str = "train_step") -> None:
    """Makes all variables of the compiled model, its metrics and its optimizers, from the spec of a batch.

    Keras makes them in the first step otherwise, too late to broadcast them. The step, or the calls of the usual one, are
    traced for a graph that is thrown away.

    Args:
        step: the method that is to run, ``"train_step"`` or ``"test_step"``.

    Raises:
        UnsupportedError: layers are left without their weights.
    """
    if model.compiled_loss in _built[step]:
        return
    own = building.is_overridden(model, step)
    # an eager step may do things that a graph cannot; and a compiled loss that it does not use must not be built: this Keras
    # would show its metric in the place of what the step logs as the loss
    if own and (not model.run_eagerly or not building.builds_all(model, lambda: _build_by_call(model, batch_spec, False))):
        building.trace(model, step, batch_spec)
    elif not own:
        _build_by_call(model, batch_spec)
    _built[step].add(model.compiled_loss)


def _build_by_call(model: Any, batch_spec: Any, with_results: bool = True) -> None:
    building.trace_function(lambda batch: _forward(model, batch, with_results), batch_spec)
    build_optimizer(model.optimizer, model.trainable_variables)


@building.leaving_python_state
def build_to_call(model: Any, batch_spec: Any) -> None:
    """Makes the variables of the model alone, compiled or not."""
    if building.is_overridden(model, "predict_step"):
        if building.unbuilt_layers(model):
            building.trace(model, "predict_step", batch_spec)
    elif not model.built:
        building.trace_function(lambda batch: _forward(model, batch), batch_spec)


def _forward(model: Any, batch: Any, with_results: bool = False) -> None:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = model(x, training=False)
    if with_results:
        model.compute_loss(x, y, y_pred, sample_weight)
        model.compute_metrics(x, y, y_pred, sample_weight)


def path(variable: Any) -> str:
    """The variable's name with those of its layers: ``"dense_9/kernel"``."""
    return str(variable.name).removesuffix(":0")


def unwrap(variable: Any) -> tf.Variable:
    """The variable: here it is TensorFlow's."""
    return variable


def is_variable(value: Any) -> bool:
    """Whether it is a variable of TensorFlow, as all variables of this Keras are."""
    return isinstance(value, tf.Variable)


@contextmanager
def jit_only_on_request(model: Any, said: Callable[[], None]) -> Iterator[None]:
    """Does nothing: this Keras uses XLA only where the user asks for it."""
    yield


def writing_functions() -> list[tuple[Any, str]]:
    """The functions of a model and a path by which Keras writes files of models: their owners and names.

    The public ones call them, and scripts import those before Tarantella could take their place.
    """
    from tf_keras.src.saving import saving_api, saving_lib

    current = [(saving_lib, "save_model"), (saving_lib, "save_weights_only")]
    older = [(saving_api.legacy_sm_saving_lib, "save_model"), (saving_api.legacy_sm_saving_lib, "save_weights")]
    return [*current, *older, (keras.Model, "export")]


def copying_functions() -> list[tuple[ModuleType, str, str]]:
    """The functions of Keras that make a model from another one or from a file: module, name, and a word for what they do.

    No callback or event of Keras' tells of them.
    """
    from tf_keras.src.models import cloning
    from tf_keras.src.saving import pickle_utils, saving_api

    return [
        (cloning, "_clone_sequential_model", "cloned"),
        (cloning, "_clone_functional_model", "cloned"),
        (saving_api.saving_lib, "load_model", "loaded from a file"),
        (saving_api.legacy_sm_saving_lib, "load_model", "loaded from a file"),
        (pickle_utils, "deserialize_model_from_bytecode", "copied"),  # by copy.deepcopy and pickle
    ]


def layers_to_compile(model: Any) -> list[Any]:
    """No layer: XLA stays off on several ranks."""
    return []


def accept_old_spellings() -> None:
    """Nothing to do: legacy Keras takes what scripts write that were made for it."""
