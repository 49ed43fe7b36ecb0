"""The contract with Keras and TensorFlow: each private name that the adapter uses, and what for.

`python -m support.keras_contract` in tests/python, where TF_USE_LEGACY_KERAS says which Keras: prints as JSON the versions
found and the names that are missing.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.tensorflow_owners import TensorFlowOwners, module_named

KERAS_3, LEGACY, BOTH = ("Keras 3",), ("legacy Keras",), ("Keras 3", "legacy Keras")


@dataclass(frozen=True)
class Name:
    """A name that the owner must have: a module, or one of the `Owners`. If that is a text, the name must stand in it."""

    front_ends: tuple[str, ...]
    owner: str
    name: str
    needed_to: str
    since: tuple[int, int] = (0, 0)
    """The first version of the front end that has the name. Before it, the adapter does without."""

    @property
    def full(self) -> str:
        return f"{self.owner}.{self.name}"


DATA_UTILITIES = "keras.src.trainers.data_adapters.data_adapter_utils"
SYNCHRONISE = "synchronise BatchNormalization over ranks"
SHARDS = "draw other random numbers for each shard"
UNWRAPPED = "warn of a copied or loaded model that trains without the other ranks"
BEGINNING = "begin in the epoch that the master's BackupAndRestore has found"
AT_ONCE = "reduce the gradients of several steps at once"
SPREAD = "spread the state of an optimizer over ranks"
ON_BATCH = "take a batch and return metrics in train_on_batch and test_on_batch as Keras does"
READ = "read data as Keras does"
REMEMBER = "keep what Keras' callbacks remember in a checkpoint"
WRITE = "write files of models once, and beside their place first"
RANDOM_STATE = "keep the random state of TensorFlow in a checkpoint"
TRACES = "draw each rank's own random numbers in a function that was traced before the step"
AUTOGRAPH = "rewrite a function by AutoGraph if its caller is"
CACHED = "give up a cache in a file before the next iterator begins"
AGAIN = "make a step again with the same batch"
LOOK = "look at the first batch of a dataset before Keras gets it"
PRECISION = "try a model of mixed precision in float32"
ADVICE = "say why ranks took parts of different batches"
DIRECTLY = "call what a step was traced into without a search in each step"
PUSHDOWN = "move the split of a batch before the maps"

# front ends, owner, names, and what they are needed to do; NAME@3.7 is there from Keras 3.7 on
TABLE = [
    # models and layers
    (BOTH, "model", "_flatten_layers", "find all layers of a model, however deep"),
    (BOTH, "model", "_jit_compile", "keep Keras from compiling a step as a whole"),
    (BOTH, "evaluate", "_use_cached_eval_dataset", "tell an evaluate of fit's from one of a callback's"),
    (KERAS_3, "dense", "_dtype_policy@3.3", PRECISION),
    (LEGACY, "dense", "_dtype_policy _compute_dtype_object", PRECISION),
    (BOTH, "masked", "_keras_mask", "carry masks into and out of what XLA compiles"),
    (KERAS_3, "model", "_symbolic_build", "make all variables of a model before they are broadcast"),
    (KERAS_3, "model", "_resolve_auto_jit_compile", "leave XLA off where nobody asked for it"),
    (KERAS_3, "model", "_jit_compile", "leave XLA off where nobody asked for it"),
    (KERAS_3, "model", "_initial_epoch", BEGINNING),
    (KERAS_3, "model", "_loss_tracker", "count the loss of a micro-batch as Keras' own steps do"),
    (KERAS_3, "model", "_losses_override", "add up the losses of all stages of a pipeline"),
    (KERAS_3, "dense", "_get_own_losses", "find the losses that the layers of a stage add"),
    (KERAS_3, "keras.src.backend", "Variable", "tell variables of Keras from those of TensorFlow"),
    (KERAS_3, "dense", "_non_trainable_variables", "find the weights of layers that are not to be trained"),
    (KERAS_3, "sequential", "_functional", "find the graph of layers of a Sequential model"),
    (KERAS_3, "model", "_run_through_graph _nodes_by_depth _outputs_struct", "compile the layers of a model in segments"),
    (KERAS_3, "normalization", "_moments _reduction_axes", SYNCHRONISE),
    (KERAS_3, "keras.src.models.cloning", "_clone_sequential_model _clone_functional_model", UNWRAPPED),
    (KERAS_3, "keras.src.saving.saving_api.saving_lib", "_load_model_from_fileobj load_model", UNWRAPPED),
    (LEGACY, "dense", "_non_trainable_weights", "find the weights of layers that are not to be trained"),
    (LEGACY, "model", "_is_compiled", "know whether a model is compiled"),
    (LEGACY, "model", "_steps_per_execution", "count the batches that one call of the training function takes"),
    (LEGACY, "model", "_train_counter", "keep the step counter that TensorBoard sees alike on all ranks"),
    (LEGACY, "model", "_maybe_load_initial_counters_from_ckpt", BEGINNING),
    (LEGACY, "normalization", "_calculate_mean_and_var", SYNCHRONISE),
    (LEGACY, "tf_keras.src.models.cloning", "_clone_sequential_model _clone_functional_model", UNWRAPPED),
    (LEGACY, "tf_keras.src.saving.saving_api", "saving_lib legacy_sm_saving_lib", UNWRAPPED),
    (LEGACY, "tf_keras.src.saving.pickle_utils", "deserialize_model_from_bytecode", UNWRAPPED),
    (BOTH, "model", "_compile_config", "compare what the models of ranks were compiled with"),
    (KERAS_3, "keras.src.saving.saving_lib", "save_model save_weights_only", WRITE),
    (KERAS_3, "keras.src.legacy.saving.legacy_h5_format", "save_model_to_hdf5", WRITE),
    (LEGACY, "tf_keras.src.saving.saving_lib", "save_model save_weights_only", WRITE),
    (KERAS_3, "trainer", "multi_step_on_iterator@3.7", DIRECTLY),
    # optimizers
    (BOTH, "optimizer", "_learning_rate", "find the learning rates that a callback may set"),
    (KERAS_3, "optimizer", "_trainable_variables _iterations@3.5 _accumulated_gradients _get_variable_index", AT_ONCE),
    (KERAS_3, "optimizer", "_trainable_variables_indices _backend_update_step _apply_weight_decay", SPREAD),
    (KERAS_3, "optimizer", "_update_model_variables_moving_average _model_variables_moving_average", SPREAD),
    (KERAS_3, "optimizer", "_overwrite_model_variables_with_average_value", SPREAD),
    (KERAS_3, "optimizer", "_backend_apply_gradients _clip_gradients", SPREAD),
    (KERAS_3, "keras.src.optimizers.base_optimizer", "global_norm", SPREAD),
    (KERAS_3, "optimizer_variable", "_value", SPREAD),
    (KERAS_3, "keras.src.utils.tracking", "DotNotTrackScope", SPREAD),
    (LEGACY, "legacy_optimizer", "_create_all_weights _hyper", "give an optimizer of the old kind its state"),
    (LEGACY, "loss_scale_optimizer", "_loss_scale", "find the state of the loss scale"),
    (LEGACY, "loss_scale", "_weights", "find the state of the loss scale"),
    # random states
    (KERAS_3, "dropout", "_seed_generators", SHARDS),
    (KERAS_3, "keras.src.random.seed_generator", "global_seed_generator", SHARDS),
    (KERAS_3, "keras.src.backend.common.global_state", "get_global_attribute", SHARDS),
    (LEGACY, "dropout", "_random_generator", SHARDS),
    (LEGACY, "random_generator", "_generator _rng_type _built _maybe_init", SHARDS),
    (BOTH, "tensorflow.python.eager.context", "context", RANDOM_STATE),
    (BOTH, "tensorflow.python.eager.polymorphic_function.function_context", "make_function_context", TRACES),
    (BOTH, "eager_context", "_rng", RANDOM_STATE),
    # losses and metrics
    (KERAS_3, "model", "_compile_loss _compile_metrics", "find the losses and metrics given to compile"),
    (KERAS_3, "losses", "_flat_losses@3.7", "weight each loss by the samples of all ranks"),
    (KERAS_3, "keras.src.losses.loss", "apply_mask", "know what a masked loss divides by"),
    (LEGACY, "losses", "_output_names", "name the output of a loss"),
    (LEGACY, "losses", "_losses", "weight each loss by the samples of all ranks"),
    (BOTH, "function_metric", "_fn", "know a metric that Keras made of a user's function"),
    (BOTH, "metrics", "_user_metrics _user_weighted_metrics", "check the metrics given to compile"),
    # what is given to Keras as data
    (KERAS_3, "keras.src.trainers.data_adapters", "get_data_adapter", READ),
    (KERAS_3, DATA_UTILITIES, "class_weight_to_sample_weights pack_x_y_sample_weight", ON_BATCH),
    (KERAS_3, "keras.src.trainers.data_adapters.array_slicing", "train_validation_split", READ),
    (LEGACY, "tf_keras.src.engine.data_adapter", "select_data_adapter _make_class_weight_map_fn", READ),
    (LEGACY, "tf_keras.src.engine.data_adapter", "single_batch_iterator train_validation_split", READ),
    # callbacks
    (LEGACY, "callback_list", "_supports_tf_logs", "spare Keras the wait for the numbers of a step"),
    (KERAS_3, "early_stopping", "_set_monitor_op", REMEMBER),
    (BOTH, "model_checkpoint", "_batches_seen_since_last_saving _last_batch_seen _should_save_on_batch", REMEMBER),
    (KERAS_3, "backup_and_restore", "_batches_seen_since_last_saving _should_save_on_batch", REMEMBER),
    (LEGACY, "backup_and_restore", "_batches_count _current_epoch", REMEMBER),
    (KERAS_3, "swap_ema_weights", "_ema_weights_in_model", REMEMBER),
    (BOTH, "tensorboard", "_global_train_batch _previous_epoch_iterations", REMEMBER),
    (KERAS_3, "tensorboard", "_global_test_batch@3.7", REMEMBER),
    (BOTH, "tensorboard", "_train_dir _val_dir", "give each rank folders of its own"),
    (KERAS_3, "backup_and_restore", "_save_model _current_epoch _last_batch_seen", WRITE),
    (KERAS_3, "backup_and_restore", "_weights_path _training_metadata_path", WRITE),
    (KERAS_3, "backup_and_restore", "_prev_weights_path@3.7 _prev_training_metadata_path@3.7", WRITE),
    # TensorFlow
    (BOTH, "tensorflow.python.ops.resource_variable_ops", "ResourceVariable", "see that a loop changes variables"),
    (BOTH, "tensorflow.python.framework.op_def_registry", "get", "know the stateful operations of a dataset"),
    (BOTH, "tensorflow.python.util.pywrap_xla_ops", "get_cpu_kernel_names", "know what XLA can compile"),
    (BOTH, "tensorflow", "__internal__", AUTOGRAPH),
    (BOTH, "operation", "_add_control_inputs", "let updates wait for the communication of a step"),
    (BOTH, "graph", "_watched_variables", "put back what a step changes before its gradients"),
    (BOTH, "call", "_read_only_resource_inputs", "put back what a step changes before its gradients"),
    (BOTH, "graph", "experimental_acd_manager outer_graph", "start collectives at once; know the function around a branch"),
    (BOTH, "graph_class", "FuncGraph", "know the function around a branch"),
    (BOTH, "control_dependencies", "run_independently", "start a collective before those before it have ended"),
    (BOTH, "autograph", "tf_convert control_status_ctx", AUTOGRAPH),
    # datasets
    (BOTH, "dataset_kinds", "BatchDataset ParallelBatchDataset PaddedBatchDataset MapDataset ParallelMapDataset", PUSHDOWN),
    (BOTH, "dataset_kinds", "PrefetchDataset OptionsDataset RepeatDataset TakeDataset SkipDataset", PUSHDOWN),
    (BOTH, "dataset_kinds", "CacheDataset", CACHED),
    (BOTH, "cached", "_filename", CACHED),
    (BOTH, "batched", "_input_dataset _inputs", "find what a dataset is made of"),
    (BOTH, "batched", "_batch_size _drop_remainder", PUSHDOWN),
    (BOTH, "parallel_batch", "_deterministic _num_parallel_calls", PUSHDOWN),
    (BOTH, "parallel_map", "_deterministic _num_parallel_calls _map_func", PUSHDOWN),
    (BOTH, "map_function", "_func", PUSHDOWN),
    (BOTH, "prefetched", "_buffer_size", PUSHDOWN),
    (BOTH, "repeated", "_count", PUSHDOWN),
    (BOTH, "taken", "_count", PUSHDOWN),
    (BOTH, "skipped", "_count", PUSHDOWN),
    (BOTH, "tensorflow.python.data.ops.dataset_ops", "UnaryUnchangedStructureDataset UnaryDataset", LOOK),
    (BOTH, "iterator", "_iterator_resource", LOOK),
    (
        BOTH,
        "tensorflow.python.data.util.structure",
        "get_flat_tensor_types get_flat_tensor_shapes from_compatible_tensor_list",
        AGAIN,
    ),
    (BOTH, "shuffled", "_seed _seed2", ADVICE),
]


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _name(front_ends: tuple[str, ...], owner: str, word: str, needed_to: str) -> Name:
    name, _, since = word.partition("@")
    return Name(front_ends, owner, name, needed_to, _number(since or "0.0"))


CONTRACT = [_name(ends, owner, word, needed_to) for ends, owner, words, needed_to in TABLE for word in words.split()]


class Owners(TensorFlowOwners):
    """Also those of Keras."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
        self.keras = importlib.import_module("tf_keras" if self.legacy else "keras")

    def find(self, owner: str) -> Any:
        return getattr(self, owner) if hasattr(type(self), owner) else module_named(owner)

    # ------------------------------------------------------------------------------------------------------- models

    @functools.cached_property
    def model(self) -> Any:
        """A functional model that has trained."""
        x = self.keras.Input((3,))
        model = self.keras.Model(x, self.dense(x))
        model.compile("sgd", "mse", metrics=["mae"])
        model.fit(self.tf.ones((4, 3)), self.tf.ones((4, 1)), verbose=0)
        return model

    @functools.cached_property
    def dense(self) -> Any:
        return self.keras.layers.Dense(1)

    @functools.cached_property
    def sequential(self) -> Any:
        return self.keras.Sequential([self.keras.Input((3,)), self.keras.layers.Dense(1)])

    @functools.cached_property
    def evaluate(self) -> str:
        return inspect.getsource(inspect.unwrap(type(self.model).evaluate))

    @functools.cached_property
    def trainer(self) -> str:
        return inspect.getsource(inspect.getmodule(inspect.unwrap(type(self.model).evaluate)))

    @functools.cached_property
    def masked(self) -> Any:
        return self.keras.layers.Embedding(3, 2, mask_zero=True)(self.tf.constant([[0, 1]]))

    @functools.cached_property
    def normalization(self) -> Any:
        layer = self.keras.layers.BatchNormalization()
        layer.build((None, 3))
        return layer

    @functools.cached_property
    def dropout(self) -> Any:
        layer = self.keras.layers.Dropout(0.5, seed=1)
        layer(self.tf.ones((2, 2)), training=True)
        return layer

    @property
    def random_generator(self) -> Any:
        return self.dropout._random_generator

    @property
    def losses(self) -> Any:
        return self.model.compiled_loss if self.legacy else self.model._compile_loss

    @property
    def metrics(self) -> Any:
        return self.model.compiled_metrics if self.legacy else self.model._compile_metrics

    @property
    def function_metric(self) -> Any:
        return self.keras.metrics.MeanMetricWrapper(lambda wanted, found: wanted)

    # --------------------------------------------------------------------------------------------------- optimizers

    @functools.cached_property
    def optimizer(self) -> Any:
        optimizer = self.keras.optimizers.SGD(**({} if self.legacy else {"gradient_accumulation_steps": 2, "use_ema": True}))
        optimizer.build(self.model.trainable_variables)
        return optimizer

    @property
    def optimizer_variable(self) -> Any:
        return self.optimizer.variables[0]

    @functools.cached_property
    def legacy_optimizer(self) -> Any:
        return self.keras.optimizers.legacy.SGD()

    @functools.cached_property
    def loss_scale_optimizer(self) -> Any:
        return self.keras.mixed_precision.LossScaleOptimizer(self.keras.optimizers.SGD())

    @property
    def loss_scale(self) -> Any:
        return self.loss_scale_optimizer._loss_scale

    @functools.cached_property
    def callback_list(self) -> str:
        return inspect.getsource(self.keras.callbacks.CallbackList)

    @property
    def early_stopping(self) -> Any:
        return self.keras.callbacks.EarlyStopping()

    @functools.cached_property
    def model_checkpoint(self) -> Any:
        return self.keras.callbacks.ModelCheckpoint(os.path.join(self.folder, "model.keras"), save_freq=2)

    @functools.cached_property
    def swap_ema_weights(self) -> Any:
        return self.keras.callbacks.SwapEMAWeights()

    @functools.cached_property
    def tensorboard(self) -> Any:
        callback = self.keras.callbacks.TensorBoard(self.folder, write_graph=False)
        callback.set_model(self.model)
        return callback

    @functools.cached_property
    def backup_and_restore(self) -> Any:
        return self.keras.callbacks.BackupAndRestore(self.folder)


def missing(owners: Owners, name: Name) -> str | None:
    """Why the name is missing; None if it is there."""
    try:
        owner = owners.find(name.owner)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    there = name.name in re.findall(r"\w+", owner) if isinstance(owner, str) else hasattr(owner, name.name)
    return None if there else f"{type(owner).__name__} has no {name.name}"


def found_with(environment: dict[str, str]) -> dict[str, Any]:
    """What this prints as a script in an environment."""
    command = [sys.executable, "-m", "support.keras_contract"]
    folder = Path(__file__).parents[1]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        owners = Owners(folder)
        front_end = "legacy Keras" if owners.legacy else "Keras 3"
        asked = [name for name in CONTRACT if front_end in name.front_ends and name.since <= _number(owners.keras.__version__)]
        found = {name.full: reason for name in asked if (reason := missing(owners, name)) is not None}
        versions = f"{owners.keras.__name__} {owners.keras.__version__}, TensorFlow {owners.tf.__version__}"
        print(json.dumps({"versions": versions, "missing": found}))


if __name__ == "__main__":
    main()
