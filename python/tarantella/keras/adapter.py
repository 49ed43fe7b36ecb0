"""The one place that knows which Keras this is: what differs between versions is answered here and nowhere else."""

from __future__ import annotations

import functools
import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras as keras  # the other modules take it from here
import tensorflow as tf

from tarantella.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

if not keras.__version__.startswith("3."):
    raise UnsupportedError(f"Keras {keras.__version__} is not supported: use Keras 3 (pip install 'keras>=3')")
if keras.backend.backend() != "tensorflow":
    raise UnsupportedError(
        f"Keras runs on {keras.backend.backend()}: Tarantella needs its TensorFlow backend (KERAS_BACKEND=tensorflow)"
    )


def version() -> str:
    """``"Keras 3.15.1"``."""
    return f"Keras {keras.__version__}"


# ------------------------------------------------------------------------------------------------- models and hooks


def is_model(value: Any) -> bool:
    """Whether it can be wrapped."""
    return isinstance(value, keras.Model)


def optimizer_hook() -> str:
    """The optimizer's method that gets gradients before they are clipped, unscaled or tested for being finite."""
    return "apply"


def build(model: Any, element_spec: Any) -> None:
    """Gives the model, its metrics and its optimizer all their variables, from the spec of a batch.

    Without this, they would be made inside the first step: too late to broadcast them before it.
    """
    symbolic = tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), element_spec)
    model._symbolic_build(data_batch=symbolic)
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def weights(model: Any) -> list[Any]:
    """All weights of the model, trainable or not, without metrics and random seeds."""
    return list(model.weights)


def optimizer_variables(model: Any) -> list[Any]:
    """The optimizer's state, its step count and learning rate included."""
    return list(model.optimizer.variables) if model.optimizer is not None else []


def trainable_variables(model: Any) -> list[Any]:
    """What an optimizer changes, in the order of the layers."""
    return list(model.trainable_variables)


def moving_statistics(model: Any) -> list[Any]:
    """Floating-point weights that are not trained but change in training, such as BatchNormalization's averages."""
    return [variable for variable in model.non_trainable_weights if tf.as_dtype(dtype_of(variable)).is_floating]


def path(variable: Any) -> str:
    """The variable's name with those of its layers: ``"dense_9/kernel"``."""
    return str(variable.path if isinstance(variable, keras.Variable) else variable.name)


def dtype_of(variable: Any) -> str:
    """The name of the variable's element type: ``"float32"``."""
    return str(tf.as_dtype(variable.dtype).name)


def unwrap(variable: Any) -> tf.Variable:
    """The TensorFlow variable inside a Keras variable."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def is_variable(value: Any) -> bool:
    """Whether it is a variable of Keras or of TensorFlow."""
    return isinstance(value, (keras.Variable, tf.Variable))


def batch_statistics() -> str:
    """The method by which a BatchNormalization gets mean and variance of a batch."""
    return "_moments"


def with_statistics(layer: Any, moments: Callable[..., Any]) -> Callable[..., Any]:
    """That method of a layer, with other statistics: moments(x, axes, keepdims, mask) gives them."""

    def statistics(inputs: Any, mask: Any) -> Any:
        return moments(inputs, layer._reduction_axes, False, mask)

    return statistics


def is_jit_compiled(model: Any) -> bool:
    """Whether Keras would compile the model's steps with XLA."""
    return bool(model.jit_compile)


def without_jit(model: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    """Keras' method that makes a step, such as `make_train_function`, but of a step that is not compiled as a whole."""

    def make_plain(*args: Any, **kwargs: Any) -> Any:
        wanted, model.jit_compile = model.jit_compile, False
        try:
            return make(*args, **kwargs)
        finally:
            model.jit_compile = wanted

    return make_plain


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


def swap_functions(model: Any, functions: tuple[Any, Any]) -> tuple[Any, Any]:
    """Gives the model other traced training and test steps (None: to be traced when needed), and returns those it had."""
    before = (model.train_function, model.test_function)
    model.train_function, model.test_function = functions
    return before


def new_train_function(model: Any) -> Any:
    """A training step that will be traced when it is called for the first time; the model's own from now on."""
    model.train_function = None  # Keras would keep it
    model.make_train_function()
    return model.train_function


# ---------------------------------------------------------------------------------------------- layers and their graph


def layers_of(model: Any) -> list[Any]:
    """The model and all layers in it, however deep."""
    return list(model._flatten_layers())


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


def mask_of(tensor: Any) -> Any:
    """The mask that goes with a tensor from layer to layer; None without one."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Gives a tensor the mask that went with another."""
    tensor._keras_mask = mask


# ------------------------------------------------------------------------------------------------------- optimizers


def is_optimizer(value: Any) -> bool:
    """Whether it is one of Keras' optimizers."""
    return isinstance(value, keras.optimizers.Optimizer)


def optimizers_of(optimizer: Any) -> list[Any]:
    """The optimizer and, if it is a LossScaleOptimizer, the one inside."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [optimizer] if inner is None else [optimizer, inner]


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


# -------------------------------------------------------------------------------------------------- losses and metrics


def loss_reductions(loss: Any) -> Iterator[str]:
    """How each loss given to ``compile`` makes one number of a batch."""
    for item in keras.tree.flatten(loss):
        yield str(getattr(item, "reduction", "sum_over_batch_size"))


def has_mask(outputs: Any) -> bool:
    """Whether a model's output tells the loss to leave samples out."""
    return any(mask_of(output) is not None for output in keras.tree.flatten(outputs))


def metric_variables(model: Any) -> list[Any]:
    """The states of all the model's metrics, the loss tracker's included; each once."""
    found = {id(variable): variable for metric in model.metrics for variable in metric.variables}
    return list(found.values())


def metric_results(model: Any) -> dict[int, list[Any]]:
    """The numbers that make up each metric's result, by the metric's id."""
    return {id(metric): tf.nest.flatten(metric.result()) for metric in model.metrics}


def output_loss_trackers(model: Any) -> list[Any]:
    """The metrics that Keras keeps of each output's loss, in a model of several outputs."""
    return list(model._compile_loss.metrics) if model.compiled and model._compile_loss is not None else []


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
) -> Any:
    """Keras' own view of what was given as data: arrays, tensors, generators or a dataset."""
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


def batches(source: Any) -> tf.data.Dataset:
    """The batches that Keras would train on, as a dataset."""
    dataset = source.get_tf_dataset()
    # Keras counts the batches of arrays, their dataset does not know the number. Without it an epoch would end with a step that
    # finds no data, but has been counted in the optimizer by then
    if source.num_batches is not None and dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(source.num_batches))
    return dataset


class Epochs(keras.callbacks.Callback):  # type: ignore[misc]
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


# --------------------------------------------------------------------------------------------------------- callbacks


def callback_list(callbacks: Any) -> list[Any]:
    """What Keras accepts as ``callbacks``, as a list of its own."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))


def callback_kinds(*names: str) -> tuple[type, ...]:
    """Those of Keras' callbacks that this version has."""
    return tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name))


def learning_rates(model: Any) -> list[tf.Variable]:
    """The learning rates that a callback may set; a schedule is none."""
    rates = [getattr(optimizer, "_learning_rate", None) for optimizer in optimizers_of(model.optimizer)]
    return [unwrap(rate) for rate in rates if is_variable(rate)]


def initial_epoch(model: Any) -> int | None:
    """With which epoch a callback has told `fit` to begin, if it has."""
    epoch = getattr(model, "_initial_epoch", None)
    return None if epoch is None else int(epoch)


def set_initial_epoch(model: Any, epoch: int | None) -> None:
    """Tells `fit`, which has begun, with which epoch to begin."""
    model._initial_epoch = epoch


def backup_writer(callback: Any, replace: Callable[[Path, Callable[[str], Any]], None]) -> list[Any]:
    """Of a `BackupAndRestore`: itself, the name of the method that writes its files, and one that writes them by `replace`."""

    def write() -> None:
        folder = Path(callback.backup_dir)
        folder.mkdir(parents=True, exist_ok=True)
        weights_file, epoch_file = Path(callback._weights_path), Path(callback._training_metadata_path)
        if callback.double_checkpoint:
            for file, kept in (
                (weights_file, callback._prev_weights_path),
                (epoch_file, callback._prev_training_metadata_path),
            ):
                if file.exists():
                    replace(Path(kept), functools.partial(shutil.copyfile, file))
        replace(weights_file, callback.model.save_weights)
        progress = {"epoch": callback._current_epoch, "batch": callback._last_batch_seen}
        replace(epoch_file, lambda path: Path(path).write_text(json.dumps(progress)))

    return [(callback, "_save_model", write)]
