"""What only Keras 3 answers so: its private parts are touched here and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras.adapter.common import (
    OF_ALL_ELEMENTS,
    OF_NOTHING,
    SPREAD,
    Callback,
    divisor_of_mean,
    layers_of,
    loss_and_elements,
    optimizer_of,
    optimizers_of,
)
from tarantella.keras.adapter.front_end import keras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

# ------------------------------------------------------------------------------------------------- models and hooks


def is_compiled(model: Any) -> bool:
    """Whether it knows its loss and its optimizer."""
    return bool(model.compiled)


def build(model: Any, batch_spec: Any) -> None:
    """Gives the compiled model, its metrics and its optimizer all their variables, from the spec of a batch.

    Without this, they would be made inside the first step: too late to broadcast them before it.
    """
    model._symbolic_build(data_batch=_symbolic(batch_spec))
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def build_to_call(model: Any, batch_spec: Any) -> None:
    """Gives the model its own variables, compiled or not."""
    if not model.built:
        model(keras.utils.unpack_x_y_sample_weight(_symbolic(batch_spec))[0])


def _symbolic(batch_spec: Any) -> Any:
    return tf.nest.map_structure(
        lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name, sparse=isinstance(spec, tf.SparseTensorSpec)), batch_spec
    )


def optimizer_variables(model: Any) -> list[Any]:
    """The optimizer's state, its step count and learning rate included."""
    optimizer = optimizer_of(model)
    return [] if optimizer is None else list(optimizer.variables)


def path(variable: Any) -> str:
    """The variable's name with those of its layers: ``"dense_9/kernel"``."""
    return str(variable.path if isinstance(variable, keras.Variable) else variable.name)


def unwrap(variable: Any) -> tf.Variable:
    """The TensorFlow variable inside a Keras variable."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def is_variable(value: Any) -> bool:
    """Whether it is a variable of Keras or of TensorFlow."""
    return isinstance(value, (keras.Variable, tf.Variable))


@contextmanager
def no_jit_unasked(model: Any, said: Callable[[], None]) -> Iterator[None]:
    """In this context ``jit_compile="auto"`` becomes False; `said` is called where it would have become True."""
    decide = getattr(model, "_resolve_auto_jit_compile", None)
    if decide is None:  # an older Keras
        yield
        return
    decisions = []

    def decide_against() -> bool:
        decisions.append(decide())
        return False

    object.__setattr__(model, "_resolve_auto_jit_compile", decide_against)
    try:
        yield
    finally:
        object.__delattr__(model, "_resolve_auto_jit_compile")
    if any(decisions):
        said()


def copying_functions() -> list[tuple[ModuleType, str, str]]:
    """The functions of Keras that make models from models or files: their module, their name, and what became of the model."""
    from keras.src.models import cloning
    from keras.src.saving import saving_api

    return [
        (cloning, "_clone_sequential_model", "cloned"),
        (cloning, "_clone_functional_model", "cloned"),
        (saving_api.saving_lib, "_load_model_from_fileobj", "copied"),  # copy.deepcopy and pickle go this way
        (saving_api, "load_model", "loaded from a file"),
        (saving_api.saving_lib, "load_model", "loaded from a file"),
    ]


# ---------------------------------------------------------------------------------------------- layers and their graph


def layers_to_compile(model: Any) -> list[Any]:
    """The model and the layers in it, whose calls XLA compiles in segments."""
    return layers_of(model)


def graph_of(layer: Any) -> Any:
    """What runs the layers of a functional or Sequential model, one by one; None if the layer is none."""
    graph = getattr(layer, "_functional", layer)  # Sequential has one inside
    return graph if hasattr(graph, "_run_through_graph") and hasattr(graph, "_nodes_by_depth") else None


def graph_runner() -> str:
    """The method of `graph_of` that does so, called with the inputs and ``operation_fn``."""
    return "_run_through_graph"


def nodes(graph: Any) -> list[Any]:
    """The graph's calls of layers and operations, in the order in which they run."""
    by_depth = graph._nodes_by_depth
    ordered = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in ordered if node.operation and not node.is_input]


def run_nodes(calls: Sequence[Any], operation_fn: Callable[[Any], Any], values: dict[int, Any]) -> None:
    """Makes the calls. values: by id of the graph's symbolic tensors; what comes of the calls is added."""
    for node in calls:
        if all(id(tensor) in values for tensor in node.input_tensors):
            args, kwargs = node.arguments.fill_in(values)
            outputs = keras.tree.flatten(operation_fn(node.operation)(*args, **kwargs))
            values.update(zip(map(id, node.outputs), outputs, strict=False))


def outputs_of(graph: Any, values: dict[int, Any]) -> Any:
    """What the graph gives, of all that was computed in it."""
    missing = [tensor.name for tensor in graph.outputs if id(tensor) not in values]
    if missing:
        raise ValueError(f"the model's output {missing[0]} does not follow from the inputs that were given")
    return keras.tree.pack_sequence_as(graph._outputs_struct, [values[id(tensor)] for tensor in graph.outputs])


# ------------------------------------------------------------------------------------------------------- optimizers


def optimizer_hook() -> str:
    """The optimizer's method that gets gradients before they are clipped, unscaled or tested for being finite."""
    return "apply"


def as_method(apply: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of this method, of a function of gradients and variables."""
    return apply


def as_apply(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as a function of gradients and variables."""
    return method


def is_optimizer(value: Any) -> bool:
    """Whether it is one of Keras' optimizers."""
    return isinstance(value, keras.optimizers.Optimizer)


def accumulating(optimizer: Any) -> Any:
    """Which of the optimizer and the one inside adds up gradients over several steps; None if none does."""
    return next((o for o in optimizers_of(optimizer) if getattr(o, "gradient_accumulation_steps", None)), None)


def steps_of_update(optimizer: Any) -> int:
    """After how many steps the optimizer changes the variables."""
    owner = accumulating(optimizer)
    return 1 if owner is None else int(owner.gradient_accumulation_steps)


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Gives the optimizer its state, as its first step would."""
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(variables))


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """The variables that a built optimizer changes."""
    return list(optimizer._trainable_variables)


def accumulators(optimizer: Any, variables: Sequence[Any]) -> list[tf.Variable]:
    """Where an accumulating, built optimizer adds up the gradients of each of the variables."""
    return [unwrap(optimizer._accumulated_gradients[optimizer._get_variable_index(v)]) for v in variables]


def is_update_step(optimizer: Any) -> tf.Tensor:
    """Whether the next call of `apply` of an accumulating optimizer changes the variables."""
    return tf.equal((micro_steps(optimizer) + 1) % optimizer.gradient_accumulation_steps, 0)


def between_updates(optimizer: Any) -> bool:
    """Whether an accumulating optimizer has gradients that it has not used yet."""
    return bool(micro_steps(optimizer) % optimizer.gradient_accumulation_steps != 0)


def micro_steps(optimizer: Any) -> tf.Tensor:
    """How often `apply` was called, accumulated or not."""
    return unwrap(optimizer._iterations).read_value()


# ------------------------------------------------------------------------------------------------------ random seeds


def seed_variables(model: Any) -> list[Any]:
    """The states of the random generators of layers."""
    return list({id(g.state): g.state for layer in layers_of(model) for g in layer._seed_generators}.values())


def forgetful_layers(model: Any) -> list[str]:
    """None: all random states of this Keras are variables."""
    return []


def common_seed_variables(make: bool = False) -> list[Any]:
    """The state of the generator for whatever has none of its own; none if it is not in use yet, unless it shall be made."""
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    if make:
        return [seed_generator.global_seed_generator().state]
    generator = global_state.get_global_attribute("global_seed_generator")
    return [] if generator is None else [generator.state]


def use_generators(model: Any) -> None:
    """All layers that draw random numbers have generators."""


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """Of a generator's state: another stream of numbers for each shard, the state's own for the first."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    return tf.cast(tf.stack([tf.bitwise.bitwise_xor(seed, shard * SPREAD % (1 << 32)), counter]), state.dtype)


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """Of the state that a step began with: far from what the step may have drawn, however much that was."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    following = (counter * 1664525 + 1013904223) % (1 << 32)  # the linear congruential generator of Numerical Recipes
    return tf.cast(tf.stack([seed, following]), state.dtype)


def step_counters(model: Any) -> list[Any]:
    """None: this Keras counts steps in the optimizer alone."""
    return []


# -------------------------------------------------------------------------------------------------- losses and metrics


def loss_reductions(loss: Any) -> Iterator[str]:
    """How each loss given to ``compile`` makes one number of a batch."""
    for item in tf.nest.flatten(loss):
        yield str(getattr(item, "reduction", "sum_over_batch_size"))


def given_metrics(model: Any) -> list[Any]:
    """The metric objects that were given to ``compile`` or that the model has, built or not; each once."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [] if compiled is None else keras.tree.flatten([compiled._user_metrics, compiled._user_weighted_metrics])
    found = [*(m for m in given if isinstance(m, keras.metrics.Metric)), *model.metrics]
    return list({id(metric): metric for metric in found}.values())


def loss_hooks(model: Any, replace: Callable[[Any], Any]) -> list[tuple[Any, str, Any]]:
    """What puts ``replace(loss)`` in the place of each output's loss of a built model: owner, attribute and value."""
    container = getattr(model, "_compile_loss", None)
    if container is None or container._flat_losses is None:
        return []
    replaced = [item._replace(loss=replace(item.loss)) for item in container._flat_losses]
    return [(container, "_flat_losses", replaced)]


def loss_and_divisor(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[tf.Tensor, Any]:
    """What the loss gives, and what it divided the weighted sum of its elements by.

    That is a number, `OF_ALL_ELEMENTS` or `OF_NOTHING`.
    """
    from keras.src.losses.loss import apply_mask

    value, elements, mask = loss_and_elements(loss, loss.call, y_true, y_pred, sample_weight)
    if elements is None:
        return value, OF_ALL_ELEMENTS
    if loss.reduction == "sum":
        return value, OF_NOTHING
    if loss.reduction != "mean_with_sample_weight":
        return value, divisor_of_mean(mask)
    weights = apply_mask(sample_weight, mask, dtype=value.dtype, reduction=loss.reduction)
    return value, OF_ALL_ELEMENTS if weights is None else tf.reduce_sum(tf.cast(weights, tf.float64))


def results_with(variables: Sequence[Any], values: Sequence[tf.Tensor], results: Callable[[], Any]) -> Any:
    """What the metrics' results would be if their states had these values; the states stay as they are."""
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        return results()


# -------------------------------------------------------------------------------------------------------------- data


def source(
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool,
    class_weight: Any,
    *,
    model: Any = None,
    epochs: int = 1,
    **loading: Any,
) -> Any:
    """Keras' own view of what was given as data: arrays, tensors, generators or a dataset.

    Args:
        model, epochs: make no difference to this Keras.

    Raises:
        TypeError: something else was given.
    """
    if loading:
        raise TypeError(f"unexpected argument {', '.join(loading)}: Keras 3 takes such from a PyDataset")
    from keras.src.trainers import data_adapters

    return data_adapters.get_data_adapter(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps,
        shuffle=shuffle and not isinstance(x, tf.data.Dataset),  # Keras would only warn
        class_weight=class_weight,
    )


def batch_of(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """One batch as Keras would train on it, of tensors."""
    from keras.src.trainers.data_adapters import data_adapter_utils

    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("sample_weight and class_weight cannot be given together")
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    packed = data_adapter_utils.pack_x_y_sample_weight(x, y, sample_weight)
    return keras.tree.map_structure(tf.convert_to_tensor, packed)


def one_batch(part: Any) -> Any:
    """What a method such as `train_on_batch` takes as ``x``, so that the model's step gets the part of a batch by `part_of`."""
    return part


def part_of(element: Any) -> Any:
    """The part of a batch, of what the step gets."""
    return element[0]


def logs_of_outputs(outputs: Any) -> dict[str, Any]:
    """What a callback sees of the model's outputs, after a batch of `predict`."""
    return outputs if isinstance(outputs, dict) else {"outputs": outputs}


def on_batch_logs(model: Any, logs: Any, return_dict: bool) -> Any:
    """What `test_on_batch` returns of the metrics' results."""
    numbers = {name: float(value) if np.ndim(value) == 0 else np.asarray(value) for name, value in logs.items()}
    return numbers if return_dict else model._flatten_metrics_in_order(numbers)


def validation_split(x: Any, y: Any, sample_weight: Any, part: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arrays to train on, and the last part of them to validate with: each x, y and sample_weight."""
    from keras.src.trainers.data_adapters import array_slicing

    training, validation = array_slicing.train_validation_split((x, y, sample_weight), validation_split=part)
    return tuple(training), tuple(validation)


def batches(source: Any) -> tf.data.Dataset:
    """The batches that Keras would train on, as a dataset."""
    dataset = source.get_tf_dataset()
    # Keras counts the batches of arrays, their dataset does not know the number. Without it an epoch would end with a step that
    # finds no data, but has been counted in the optimizer by then
    if source.num_batches is not None and dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(source.num_batches))
    return dataset


def steps_of(source: Any, given: int | None) -> int | None:
    """After how many batches an epoch ends; None: when there are no more."""
    return given


class Epochs(Callback):
    """Tells a source of batches where epochs begin and end, as Keras would: a `PyDataset` may shuffle there."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def on_train_begin(self, logs: Any = None) -> None:
        self._source.on_epoch_end()  # so does Keras, before the first

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._source.on_epoch_begin()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._source.on_epoch_end()
