"""Models, their layers and weights, and the functions that Keras makes of their steps."""

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.building import is_overridden
from tarantella.keras.adapter.common.optimizers import held_optimizers, trained_by
from tarantella.keras.adapter.front_end import LEGACY, keras


def version() -> str:
    """``"Keras 3.15.1"``."""
    return f"Keras {keras.__version__}"


def is_model(value: Any) -> bool:
    """Whether the value is a model of the Keras in use."""
    return isinstance(value, keras.Model)


def in_other_keras(value: Any) -> str:
    """The end of an error message about an object of the Keras that is not in use. Empty for any other object."""
    other, name, advice = ("keras", "Keras 3", "unset") if LEGACY else ("tf_keras", "legacy Keras (tf_keras)", "set")
    if not any(base.__module__.partition(".")[0] == other for base in type(value).__mro__):
        return ""
    return f"this one is of {name}: {advice} TF_USE_LEGACY_KERAS{'' if LEGACY else '=1'} before TensorFlow is imported"


def model_from_config(config: Any, **kwargs: Any) -> Any:
    """The functional or Sequential model that has this configuration."""
    kinds = [keras.Sequential, keras.Model]
    for kind in kinds if isinstance(config, dict) and "input_layers" not in config else kinds[::-1]:
        try:
            return kind.from_config(config, **kwargs)
        except (TypeError, ValueError, KeyError) as error:
            problem = error
    raise RuntimeError(f"this is not the configuration of a functional or Sequential model of Keras: {problem}")


def has_own(model: Any, *names: str) -> bool:
    """Whether one of these methods of the model is the user's own in the place of Keras'."""
    return any(is_overridden(model, name) for name in names)


def weights(model: Any) -> list[Any]:
    """All weights of the model, trainable or not, without metrics and random seeds.

    Variables that are none of a layer's count as well if an optimizer of the model changes them.
    """
    known = {id(_tensor_flow_variable(variable)): variable for variable in _without_tables(model.weights)}
    for variable in trained_by(held_optimizers(model)):
        known.setdefault(id(_tensor_flow_variable(variable)), variable)
    return _without_metrics(model, list(known.values()))


def variables(model: Any) -> list[Any]:
    """All variables of the model, those of its metrics included."""
    return _without_tables(model.variables)


def _tensor_flow_variable(variable: Any) -> tf.Variable:
    return variable if isinstance(variable, tf.Variable) else variable.value


def trainable_variables(model: Any) -> list[Any]:
    """The variables that the optimizer changes, in the order of the layers."""
    return list(model.trainable_variables)


def moving_statistics(model: Any) -> list[Any]:
    """The floating-point weights that training changes without an optimizer, such as BatchNormalization's averages."""
    weights = _without_metrics(model, model.non_trainable_weights)
    return [variable for variable in weights if tf.as_dtype(dtype_of(variable)).is_floating]


def untrained_weights(model: Any) -> list[Any]:
    """The weights that layers made as not trainable, such as averages, but not those of layers that were frozen later.

    Keras has this distinction in a private list of each layer only: the public ``non_trainable_weights`` holds both.
    """
    name = "_non_trainable_weights" if LEGACY else "_non_trainable_variables"
    found = {id(v): v for layer in layers_of(model) for v in getattr(layer, name)}
    return _without_metrics(model, list(found.values()))


def _without_metrics(model: Any, weights: Sequence[Any]) -> list[Any]:
    """Without the states of metrics, which legacy Keras counts among the weights if a metric is an attribute of the model."""
    states = {id(variable) for variable in metric_variables(model)}
    return [variable for variable in _without_tables(weights) if id(variable) not in states]


def _without_tables(weights: Sequence[Any]) -> list[Any]:
    """Without the tables of words that preprocessing layers of legacy Keras have among their weights."""
    return [variable for variable in weights if hasattr(variable, "shape")]


def metric_variables(model: Any) -> list[Any]:
    """The states of all the model's metrics, the loss tracker's included; each once."""
    found = {id(variable): variable for metric in model.metrics for variable in metric.variables}
    return list(found.values())


def dtype_of(variable: Any) -> str:
    """The name of the variable's element type: ``"float32"``."""
    return str(tf.as_dtype(variable.dtype).base_dtype.name)


def is_jit_compiled(model: Any) -> bool:
    """Whether Keras would compile the model's steps with XLA."""
    return bool(model.jit_compile)


def without_jit(model: Any) -> list[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) that keeps Keras from compiling a whole step of the model.

    The public ``jit_compile`` is a property: a value set there could not be taken away again.
    """
    return [(model, "_jit_compile", False)]


def before_training(action: Callable[[Any], None]) -> None:
    """Runs the action with each model of this process before Keras makes the function of its training step."""
    original = keras.Model.make_train_function

    @functools.wraps(original)
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        action(self)
        return original(self, *args, **kwargs)

    keras.Model.make_train_function = make_train_function


def layers_of(model: Any) -> list[Any]:
    """The model and all layers in it, however deep; the public ``layers`` go one level down only."""
    return list(model._flatten_layers())


def runs_eagerly(model: Any) -> bool:
    """Whether the model's steps are best run eagerly: legacy Keras rewrites the calls of layers in a graph."""
    return bool(LEGACY or model.run_eagerly)


def layers_with_calls(model: Any) -> list[Any]:
    """The model, all layers in it, and the operations between layers that functional models of Keras 3 have."""
    found = {id(layer): layer for layer in layers_of(model)}
    for layer in list(found.values()):
        found.update((id(operation), operation) for operation in getattr(layer, "operations", []))
    return list(found.values())


def new_train_function(model: Any) -> Any:
    """Makes a new training function for the model, which is traced at its first call, and returns it."""
    model.__dict__["train_function"] = None  # Keras makes no other while it has one; no client asks for this one
    model.make_train_function()
    return model.train_function


def is_validation_of_fit(arguments: dict[str, Any]) -> bool:
    """Whether these keyword arguments of `evaluate` come from the validation inside `fit`, which adds a private one."""
    return bool(arguments.get("_use_cached_eval_dataset"))


def mask_of(tensor: Any) -> Any:
    """The mask that Keras passes along with a tensor from layer to layer, or None. It exists as a private attribute only."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Gives a tensor this mask."""
    tensor._keras_mask = mask


def compile_arguments(model: Any) -> dict[str, Any]:
    """The arguments of `compile` as they were given, by name; the public `get_compile_config` fails at objects of others."""
    return dict(getattr(getattr(model, "_compile_config", None), "config", {}))


def batch_statistics() -> str:
    """The name of the method by which a BatchNormalization computes mean and variance of a batch.

    The public switch ``synchronized`` works under `tf.distribute` alone.
    """
    return "_calculate_mean_and_var" if LEGACY else "_moments"


def with_statistics(layer: Any, moments: Callable[..., Any]) -> Callable[..., Any]:
    """That method of a layer with other statistics, which moments(x, axes, keepdims, mask) computes."""

    def keras2_statistics(inputs: Any, reduction_axes: Any, keep_dims: bool, mask: Any = None) -> Any:
        return moments(inputs, reduction_axes, keep_dims, mask)

    def keras3_statistics(inputs: Any, mask: Any) -> Any:
        return moments(inputs, layer._reduction_axes, False, mask)

    return keras2_statistics if LEGACY else keras3_statistics


def steps_per_execution(model: Any) -> int:
    """How many batches one call of the training function takes. Legacy Keras keeps the number in a private variable."""
    if not LEGACY:
        return int(model.steps_per_execution)
    steps = model._steps_per_execution
    return 1 if steps is None else int(steps.numpy())  # None before the model is compiled


def share_initial_epoch(model: Any, broadcast: Callable[[list[int]], list[int]]) -> None:
    """Makes `fit` continue on all ranks at the epoch (and step) that the master's `BackupAndRestore` found.

    `fit` has begun by then: its public ``initial_epoch`` comes too late.

    Args:
        broadcast: broadcasts the master's numbers.
    """
    if not LEGACY:
        epoch = model._initial_epoch
        (begin,) = broadcast([-1 if epoch is None else int(epoch)])
        model._initial_epoch = None if begin < 0 else begin
        return
    name = "_maybe_load_initial_counters_from_ckpt"  # fit calls it next
    original = getattr(model, name)

    def counters(*args: Any) -> tuple[int, ...]:
        object.__delattr__(model, name)
        return tuple(broadcast([int(number) for number in original(*args)]))

    object.__setattr__(model, name, counters)


def with_global(function: Callable[..., Any], name: str, **attributes: Any) -> Callable[..., Any]:
    """A copy of a function, for which an object that its module knows by this name has other attributes."""
    known = {**function.__globals__, name: _Changed(function.__globals__.get(name), attributes)}
    return types.FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)


class _Changed:
    def __init__(self, original: Any, attributes: dict[str, Any]) -> None:
        self._original = original
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


_FEW_BITS = ("float16", "bfloat16")


def in_full_precision(model: Any) -> Iterator[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) with which layers of mixed precision compute in float32, as their weights are.

    The public ``dtype_policy`` of a layer is an attribute in Keras 3.2, and a property in later ones and legacy Keras.
    """
    policy = keras.mixed_precision.Policy("float32") if LEGACY else keras.DTypePolicy("float32")
    for layer in layers_of(model):
        if getattr(layer, "compute_dtype", "") in _FEW_BITS and getattr(layer, "variable_dtype", "") == "float32":
            yield layer, "_dtype_policy" if hasattr(layer, "_dtype_policy") else "dtype_policy", policy
            if LEGACY:
                yield layer, "_compute_dtype_object", tf.float32


def computes_in_16_bits(model: Any) -> bool:
    """Whether layers of the model compute in too few bits for a comparison, also where `in_full_precision` holds."""
    return any(
        getattr(layer, "compute_dtype", "") in _FEW_BITS and getattr(layer, "variable_dtype", "") != "float32"
        for layer in layers_of(model)
    )
