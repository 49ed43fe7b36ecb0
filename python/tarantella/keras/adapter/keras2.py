"""What only legacy Keras (`tf_keras`) answers so: its private parts are touched here and nowhere else.

None of its optimizers adds up gradients over several steps, and a step is not compiled in segments: what is asked of Keras 3
about these is not here, as `accumulating` gives none and `layers_to_compile` has none.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
    return bool(model._is_compiled)


_built: weakref.WeakSet[Any] = weakref.WeakSet()  # what `compile` made of the losses of models that are built since


def build(model: Any, batch_spec: Any) -> None:
    """Gives the compiled model, its metrics and its optimizer all their variables, from the spec of a batch.

    Without this, they would be made inside the first step: too late to broadcast them before it. The step, or what the usual
    one is made of, is traced for a graph that is thrown away.
    """
    if model.compiled_loss in _built:
        return
    if type(model).train_step is not keras.Model.train_step and not model.run_eagerly:
        _trace(model.train_step, batch_spec)  # it alone knows what it uses of the model
    else:
        _trace(lambda batch: _forward(model, batch, with_results=True), batch_spec)
        build_optimizer(model.optimizer, model.trainable_variables)
    _built.add(model.compiled_loss)


def build_to_call(model: Any, batch_spec: Any) -> None:
    """Gives the model its own variables, compiled or not."""
    if not model.built:
        _trace(lambda batch: _forward(model, batch), batch_spec)


def _forward(model: Any, batch: Any, with_results: bool = False) -> None:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = model(x, training=False)
    if with_results:
        model.compute_loss(x, y, y_pred, sample_weight)
        model.compute_metrics(x, y, y_pred, sample_weight)


def _trace(step: Callable[[Any], Any], batch_spec: Any) -> None:
    def traced(batch: Any) -> None:
        step(batch)

    tf.function(traced).get_concrete_function(tf.nest.map_structure(_of_any_size, batch_spec))


def _of_any_size(spec: Any) -> Any:
    """The spec for batches of any size: a Sequential model would remember the size, and save it."""
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def path(variable: Any) -> str:
    """The variable's name with those of its layers: ``"dense_9/kernel"``."""
    return str(variable.name).removesuffix(":0")


def unwrap(variable: Any) -> tf.Variable:
    """The variable: here it is TensorFlow's."""
    return variable


def is_variable(value: Any) -> bool:
    """Whether it is a variable of TensorFlow, as all of this Keras are."""
    return isinstance(value, tf.Variable)


@contextmanager
def no_jit_unasked(model: Any, said: Callable[[], None]) -> Iterator[None]:
    """This Keras uses XLA only where it is asked to."""
    yield


def copying_functions() -> list[tuple[ModuleType, str, str]]:
    """The functions of Keras that make models from models or files: their module, their name, and what became of the model."""
    from tf_keras.src.models import cloning
    from tf_keras.src.saving import pickle_utils, saving_api

    return [
        (cloning, "_clone_sequential_model", "cloned"),
        (cloning, "_clone_functional_model", "cloned"),
        (saving_api.saving_lib, "load_model", "loaded from a file"),
        (saving_api.legacy_sm_saving_lib, "load_model", "loaded from a file"),
        (pickle_utils, "deserialize_model_from_bytecode", "copied"),  # copy.deepcopy and pickle go this way
    ]


def layers_to_compile(model: Any) -> list[Any]:
    """None: XLA stays off on several ranks."""
    return []


# ------------------------------------------------------------------------------------------------------- optimizers


def optimizer_hook() -> str:
    """The optimizer's method that gets gradients before they are clipped or tested for being finite."""
    return "apply_gradients"


def as_method(apply: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of this method, of a function of gradients and variables."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        if args:
            kwargs["name"] = args[0]
        return apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs], **kwargs)

    apply_gradients._tnt_apply = apply
    return apply_gradients  # type: ignore[no-any-return]


def as_apply(method: Any) -> Callable[..., Any]:
    """The method as a function of gradients and variables; what `as_method` was given, if it comes from there."""
    if hasattr(method, "_tnt_apply"):
        return method._tnt_apply  # type: ignore[no-any-return]

    def apply(grads: Any, trainable_variables: Any, **kwargs: Any) -> Any:
        return method(list(zip(grads, trainable_variables, strict=True)), **kwargs)

    return apply


def is_optimizer(value: Any) -> bool:
    """Whether it is one of Keras' optimizers, of the new kind or the old."""
    return isinstance(value, (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer))


def accumulating(optimizer: Any) -> Any:
    """None: no optimizer of this Keras adds up gradients over several steps."""
    return None


def steps_of_update(optimizer: Any) -> int:
    """After how many steps the optimizer changes the variables."""
    return 1


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Gives the optimizer its state, as its first step would."""
    if isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(list(variables))
    else:
        optimizer.build(list(variables))


def optimizer_variables(model: Any) -> list[Any]:
    """The optimizer's state, its step count, learning rate and loss scale included."""
    found: dict[int, Any] = {}
    outer = optimizer_of(model)
    for optimizer in [] if outer is None else optimizers_of(outer):
        found.update((id(value), value) for value in _state(optimizer) if isinstance(value, tf.Variable))
    return list(found.values())


def _state(optimizer: Any) -> Iterator[Any]:
    if len(optimizers_of(optimizer)) > 1:  # a LossScaleOptimizer; without a dynamic scale it has no state of its own
        yield from getattr(optimizer._loss_scale, "_weights", {}).values()
    elif isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        yield from (*optimizer.weights, *optimizer._hyper.values())
    else:
        yield from (*optimizer.variables, optimizer.learning_rate)


# ------------------------------------------------------------------------------------------------------ random seeds


def seed_variables(model: Any) -> list[Any]:
    """The states of the random generators of layers."""
    found = [getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in layers_of(model)]
    return list({id(generator.state): generator.state for generator in found if generator is not None}.values())


def forgetful_layers(model: Any) -> list[str]:
    """The names of layers whose random numbers come from states that TensorFlow does not give away."""
    return [layer.name for layer in _without_generator(model)]


def _without_generator(model: Any) -> list[Any]:
    def kind(layer: Any) -> str:
        return getattr(getattr(layer, "_random_generator", None), "_rng_type", "")

    return [layer for layer in layers_of(model) if kind(layer) == "legacy_stateful"]


def common_seed_variables(make: bool = False) -> list[Any]:
    """None: what has no generator of its own has a state that cannot be had."""
    return []


def use_generators(model: Any) -> None:
    """Gives layers that draw random numbers generators of their own, which they do not have unless it is asked for."""
    for layer in _without_generator(model):
        random = layer._random_generator
        random._rng_type, random._built = random.RNG_STATEFUL, False
        random._maybe_init()


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """Of a generator's state: another stream of numbers for each shard, the state's own for the first."""
    return tf.concat([state[:-1], tf.bitwise.bitwise_xor(state[-1:], shard * SPREAD)], 0)  # counters, and a key


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """Of the state that a step began with: far from what the step may have drawn, however much that was."""
    return tf.concat([state[:1] + (1 << 32), state[1:]], 0)


def step_counters(model: Any) -> list[Any]:
    """How many steps the model has made, as `TensorBoard` sees it."""
    return [model._train_counter]


# -------------------------------------------------------------------------------------------------- losses and metrics


def loss_reductions(loss: Any) -> Iterator[str]:
    """How each loss given to ``compile`` makes one number of a batch."""
    for item in tf.nest.flatten(loss):
        yield str(getattr(item, "reduction", "auto"))


def given_metrics(model: Any) -> list[Any]:
    """The metric objects that were given to ``compile`` or that the model has, built or not; each once."""
    compiled = getattr(model, "compiled_metrics", None)
    given = [] if compiled is None else tf.nest.flatten([compiled._user_metrics, compiled._user_weighted_metrics])
    found = [*(m for m in given if isinstance(m, keras.metrics.Metric)), *model.metrics]
    return list({id(metric): metric for metric in found}.values())


class _Replaced:
    """What takes the place of a loss: Keras looks at its reduction, too."""

    def __init__(self, loss: Any, call: Callable[..., tf.Tensor]) -> None:
        self.reduction = loss.reduction
        self._call = call

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        return self._call(y_true, y_pred, sample_weight)


def loss_hooks(model: Any, replace: Callable[[Any], Any]) -> list[tuple[Any, str, Any]]:
    """What puts ``replace(loss)`` in the place of each output's loss of a built model: owner, attribute and value."""
    container = getattr(model, "compiled_loss", None)
    if container is None or not container.built:
        return []
    replaced = [None if loss is None else _Replaced(loss, replace(loss)) for loss in container._losses]
    return [(container, "_losses", replaced)]


def loss_and_divisor(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[tf.Tensor, Any]:
    """What the loss gives, and what it divided the weighted sum of its elements by.

    That is a number, `OF_ALL_ELEMENTS` or `OF_NOTHING`.
    """
    autograph = tf.__internal__.autograph
    call = autograph.tf_convert(loss.call, autograph.control_status_ctx())
    value, elements, mask = loss_and_elements(loss, call, y_true, y_pred, sample_weight)
    if elements is None:
        return value, OF_ALL_ELEMENTS
    return value, OF_NOTHING if loss.reduction == "sum" else divisor_of_mean(mask)


def results_with(variables: Sequence[Any], values: Sequence[tf.Tensor], results: Callable[[], Any]) -> Any:
    """What the metrics' results would be if their states had these values; the states stay as they are."""
    before = [variable.read_value() for variable in variables]
    _assign(variables, values)
    # a result may be a state itself, which is read here, before it gets its old value back
    found = tf.nest.map_structure(lambda value: tf.identity(value) if tf.is_tensor(value) else value, results())
    _assign(variables, before)
    return found


def _assign(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


# -------------------------------------------------------------------------------------------------------------- data


class _Source:
    """Keras' view of data: its batches, how many an epoch has (None: not known), and what happens between epochs."""

    def __init__(self, data_adapter: Any, dataset: tf.data.Dataset, steps: int | None) -> None:
        self._data_adapter = data_adapter
        self.dataset = dataset
        self.steps = steps

    def on_epoch_end(self) -> None:
        self._data_adapter.on_epoch_end()


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
        model: is built from the first batch of a generator, whose shapes are not known.
        epochs: for how many epochs batches are asked for: in each, arrays are shuffled anew.
        loading: ``max_queue_size``, ``workers`` and ``use_multiprocessing``, as `fit` takes them.
    """
    from tf_keras.src.engine import data_adapter as engine

    made = engine.select_data_adapter(x, y)(
        x,
        y,
        sample_weights=sample_weight,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        shuffle=shuffle,
        model=model,
        distribution_strategy=tf.distribute.get_strategy(),
        **loading,
    )
    dataset = made.get_dataset()
    if class_weight:
        dataset = dataset.map(engine._make_class_weight_map_fn(class_weight))
    if isinstance(x, tf.data.Dataset):
        return _Source(made, dataset, steps)
    size = made.get_size() if steps is None else steps
    if made.should_recreate_iterator() and size is not None:  # a Sequence begins anew in each epoch, whatever the steps
        dataset = dataset.take(size).apply(tf.data.experimental.assert_cardinality(size))
    return _Source(made, dataset, size)


def batch_of(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """One batch as Keras would train on it, of tensors."""
    from tf_keras.src.engine import data_adapter as engine

    return next(engine.single_batch_iterator(tf.distribute.get_strategy(), x, y, sample_weight, class_weight))


def one_batch(part: Any) -> Any:
    """What a method such as `train_on_batch` takes as ``x``, so that the model's step gets the part of a batch by `part_of`.

    Keras wants tensors that agree in their first dimension: each gets one more.
    """
    return tf.nest.map_structure(lambda tensor: tf.expand_dims(tensor, 0), part)


def part_of(element: Any) -> Any:
    """The part of a batch, of what the step gets."""
    return tf.nest.map_structure(lambda tensor: tensor[0], element[0])


def logs_of_outputs(outputs: Any) -> dict[str, Any]:
    """What a callback sees of the model's outputs, after a batch of `predict`."""
    return {"outputs": outputs}


def on_batch_logs(model: Any, logs: Any, return_dict: bool) -> Any:
    """What `test_on_batch` returns of the metrics' results."""
    from tf_keras.src.engine import training
    from tf_keras.src.utils import tf_utils

    numbers = tf_utils.sync_to_numpy_or_python_type(logs)
    return numbers if return_dict else training.flatten_metrics_in_order(numbers, model.metrics_names)


def validation_split(x: Any, y: Any, sample_weight: Any, part: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arrays to train on, and the last part of them to validate with: each x, y and sample_weight."""
    from tf_keras.src.engine import data_adapter as engine

    training, validation = engine.train_validation_split((x, y, sample_weight), validation_split=part)
    return tuple(training), tuple(validation)


def batches(source: _Source) -> tf.data.Dataset:
    """The batches that Keras would train on, as a dataset."""
    return source.dataset


def steps_of(source: _Source, given: int | None) -> int | None:
    """After how many batches an epoch ends: arrays' batches go on without an end between the epochs."""
    return source.steps


class Epochs(Callback):
    """Tells a source of batches where epochs end: a `Sequence` may shuffle there."""

    def __init__(self, source: _Source) -> None:
        super().__init__()
        self._source = source

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._source.on_epoch_end()
