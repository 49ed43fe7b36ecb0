"""Models of Keras 3: how their variables are made and named."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import tensorflow as tf
from keras.src.backend import Variable  # before Keras 3.7 the public one is a subclass, which layers' weights are not

from tarantella.keras.adapter.common import building
from tarantella.keras.adapter.common.models import layers_of
from tarantella.keras.adapter.common.optimizers import held_optimizers, is_slot
from tarantella.keras.adapter.front_end import keras


def is_compiled(model: Any) -> bool:
    """Whether the model knows its loss and its optimizer."""
    return bool(model.compiled)


@building.leaving_python_state
def build(model: Any, batch_spec: Any, step: str = "train_step") -> None:
    """Makes all variables of the compiled model, its metrics and its optimizers, from the spec of a batch.

    Keras makes them in the first step otherwise, too late to broadcast them. The public `build` makes the model's own alone.
    They are made by a call of the model and its loss. The step is traced if the call fails: Keras calls the model with dense
    tensors alone. A step of the user's own may need neither: it is traced, too, if it has no loss to be called, or if the call
    leaves something out.

    Args:
        step: the method that is to run, ``"train_step"`` or ``"test_step"``.

    Raises:
        UnsupportedError: layers are left without their weights.
    """
    if building.was_traced(model, step):
        return
    if not building.is_overridden(model, step):
        if not building.succeeds(lambda: _build_by_call(model, batch_spec)):
            building.trace(model, step, batch_spec)
    elif getattr(model, "_compile_loss", None) is None or not _call_builds_all(model, batch_spec):
        building.trace(model, step, batch_spec)


def _build_by_call(model: Any, batch_spec: Any) -> None:
    try:
        model._symbolic_build(data_batch=_symbolic(batch_spec))
    except Exception:
        if not model.run_eagerly or not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(batch_spec) if spec):
            raise
        _build_eagerly(model, batch_spec)  # a layer or a metric computes with NumPy
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _build_eagerly(model: Any, batch_spec: Any) -> None:
    """Calls the model on one sample of zeros; no metric sees it."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(tf.nest.map_structure(_zeros, batch_spec))
    predicted = model(x, training=False)
    for compiled in (model._compile_metrics, model._compile_loss):
        if compiled is not None and not compiled.built:
            compiled.build(y, predicted)


def _zeros(spec: Any) -> Any:
    return spec and tf.zeros([size or 1 for size in spec.shape], spec.dtype)


def _call_builds_all(model: Any, batch_spec: Any) -> bool:
    by_call = building.builds_all(model, lambda: _build_by_call(model, batch_spec))
    return by_call and all(optimizer.built for optimizer in held_optimizers(model))


@building.leaving_python_state
def build_to_call(model: Any, batch_spec: Any) -> None:
    """Makes the variables of the model alone, compiled or not."""
    if building.is_overridden(model, "predict_step"):
        if building.unbuilt_layers(model):
            building.trace(model, "predict_step", batch_spec)
    elif not model.built:
        symbols = keras.utils.unpack_x_y_sample_weight(_symbolic(batch_spec))[0]
        if not building.succeeds(lambda: model(symbols)):
            building.trace(model, "predict_step", batch_spec)


def _symbolic(batch_spec: Any) -> Any:
    return tf.nest.map_structure(
        lambda spec: spec and keras.KerasTensor(spec.shape, spec.dtype.name, sparse=isinstance(spec, tf.SparseTensorSpec)),
        batch_spec,
    )


def optimizer_variables(model: Any) -> list[Any]:
    """The state of all optimizers of the model, their step counts and learning rates included."""
    found = {id(variable): variable for optimizer in held_optimizers(model) for variable in optimizer.variables}
    return list(found.values())


def state_of_optimizer(optimizer: Any) -> list[Any]:
    """The state of one optimizer, as `optimizer_variables` has that of a model's."""
    return list(optimizer.variables)


def whole_optimizer_variables(model: Any) -> list[Any]:
    """Those that every rank holds: all, unless the optimizer is spread over ranks."""
    return [variable for variable in optimizer_variables(model) if not is_slot(variable)]


def path(variable: Any) -> str:
    """The variable's name with those of its layers: ``"dense_9/kernel"``."""
    return str(variable.path if isinstance(variable, Variable) else variable.name)


def unwrap(variable: Any) -> tf.Variable:
    """The TensorFlow variable inside a Keras variable."""
    return variable.value if isinstance(variable, Variable) else variable


def is_variable(value: Any) -> bool:
    """Whether it is a variable of Keras or of TensorFlow."""
    return isinstance(value, (Variable, tf.Variable))


@contextmanager
def jit_only_on_request(model: Any, said: Callable[[], None]) -> Iterator[None]:
    """In this context ``jit_compile="auto"`` means False; `said` is called if it would have meant True.

    Keras decides in a private method of `compile`'s, and has no public way to ask for the decision. A first `compile` with
    another value asks, too, when it compares what it sets with what was there.
    """
    if model._jit_compile is None:
        object.__setattr__(model, "_jit_compile", False)
    decide = model._resolve_auto_jit_compile
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


def release(variable: Any) -> None:
    """Frees the memory of a variable that another rank holds: its value is an empty array until `refill`.

    The public `assign` refuses another shape.
    """
    inner = unwrap(variable)
    tf.raw_ops.AssignVariableOp(resource=inner.handle, value=tf.zeros([0], inner.dtype), validate_shape=False)


def refill(variable: Any, value: Any) -> None:
    """Gives a released variable a value again."""
    inner = unwrap(variable)
    value = tf.ensure_shape(tf.convert_to_tensor(value, inner.dtype), inner.shape)
    tf.raw_ops.AssignVariableOp(resource=inner.handle, value=value, validate_shape=False)


def writing_functions() -> list[tuple[Any, str]]:
    """The functions of a model and a path by which Keras writes files of models: their owners and names.

    The public ones call them, and scripts import those before Tarantella could take their place.
    """
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    savers = [(saving_lib, "save_model"), (saving_lib, "save_weights_only"), (legacy_h5_format, "save_model_to_hdf5")]
    return [*savers, (keras.Model, "export")]


def copying_functions() -> list[tuple[ModuleType, str, str]]:
    """The functions of Keras that make a model from another one or from a file: module, name, and a word for what they do.

    No callback or event of Keras' tells of them.
    """
    from keras.src.models import cloning
    from keras.src.saving import saving_api

    return [
        (cloning, "_clone_sequential_model", "cloned"),
        (cloning, "_clone_functional_model", "cloned"),
        (saving_api.saving_lib, "_load_model_from_fileobj", "copied"),  # by copy.deepcopy and pickle
        (saving_api, "load_model", "loaded from a file"),
        (saving_api.saving_lib, "load_model", "loaded from a file"),
    ]


# ---------------------------------------------------------------------------------------------------------------- old spellings


class _Variables(list[Any]):
    def __call__(self) -> list[Any]:
        return self


@functools.cache
def accept_old_spellings() -> None:
    """Lets scripts write what legacy Keras takes: ``optimizer.variables()``, ``optimizer.lr``, and an option of `compile`."""
    variables, compile_model = keras.optimizers.Optimizer.variables.fget, keras.Model.compile
    owner = next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))  # in Model it would count as a user's

    def compile(self: Any, *args: Any, experimental_run_tf_function: Any = None, **kwargs: Any) -> Any:
        return compile_model(self, *args, **kwargs)

    keras.optimizers.Optimizer.variables = property(lambda self: _Variables(variables(self)))
    if not hasattr(keras.optimizers.Optimizer, "lr"):
        keras.optimizers.Optimizer.lr = keras.optimizers.Optimizer.learning_rate
    owner.compile = functools.wraps(compile_model)(compile)


# ---------------------------------------------------------------------------------------------------------- the graph of layers

# XLA compiles segments of a model, for which the layers are called one by one. Keras runs its graph in one private method and
# has no public view of its order.


def layers_to_compile(model: Any) -> list[Any]:
    """The model and the layers in it whose calls XLA compiles in segments."""
    return layers_of(model)


def layer_graph(layer: Any) -> Any:
    """The object that runs the layers of a functional or Sequential model; None for any other layer."""
    graph = getattr(layer, "_functional", layer)  # Sequential has one inside
    return graph if hasattr(graph, "_run_through_graph") and hasattr(graph, "_nodes_by_depth") else None


def layer_graph_runner() -> str:
    """The name of that object's method that runs them, given the inputs and ``operation_fn``."""
    return "_run_through_graph"


def layer_calls(graph: Any) -> list[Any]:
    """The graph's calls of layers and operations, in the order in which they run."""
    by_depth = graph._nodes_by_depth
    ordered = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in ordered if node.operation and not node.is_input]


def run_layer_calls(calls: Sequence[Any], operation_fn: Callable[[Any], Any], values: dict[int, Any]) -> None:
    """Makes the calls and adds their results to the values, which are by id of the graph's symbolic tensors."""
    for node in calls:
        if all(id(tensor) in values for tensor in node.input_tensors):
            args, kwargs = node.arguments.fill_in(values)
            outputs = keras.tree.flatten(operation_fn(node.operation)(*args, **kwargs))
            values.update(zip(map(id, node.outputs), outputs, strict=False))


def layer_graph_outputs(graph: Any, values: dict[int, Any]) -> Any:
    """The graph's outputs, from the values that were computed in it."""
    missing = [tensor.name for tensor in graph.outputs if id(tensor) not in values]
    if missing:
        raise ValueError(f"the model's output {missing[0]} does not follow from the inputs that were given")
    return keras.tree.pack_sequence_as(graph._outputs_struct, [values[id(tensor)] for tensor in graph.outputs])
