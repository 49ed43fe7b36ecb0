"""The Keras model inside a `tnt.Model` that is a pipeline, with its stages and what each rank holds of it."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime, threads
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, deferred, files
from tarantella.keras.data import split
from tarantella.keras.drivers.distributed_model import DistributedModel, Options, refuse_stateful_layers
from tarantella.keras.pipeline import cut as cuts
from tarantella.keras.pipeline import stages, trace
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.pipeline.hooks import PipelineHooks
from tarantella.keras.pipeline.options import PipelineArguments, PipelineOptions
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.pipeline.view import PipelineView
from tarantella.keras.pipeline.weights import Holdings, optimizer_for
from tarantella.keras.reduction import weights
from tarantella.keras.reproducible import shard_state
from tarantella.keras.sharding import trial
from tarantella.keras.trial.trials import Trials
from tarantella.pipeline_schedule import Schedule, schedule


class PipelinedModel(DistributedModel):
    """A Keras model of which each rank trains some stages.

    Args:
        keras_model: the model. It is used, not copied.
        options: checked ones.
        arguments: as the user gave them.
        pipeline: checked ones.
    """

    hooks: PipelineHooks | None

    def __init__(self, keras_model: Any, options: Options, arguments: PipelineArguments, pipeline: PipelineOptions) -> None:
        super().__init__(keras_model, options)
        threads.use_all_cores()  # those of a rank that waits for a stage
        self._arguments, self._pipeline = arguments, pipeline
        self._replicas = Replicas(pipeline.replicas, pipeline.micro_batches)
        self._schedule: Schedule = schedule(
            pipeline.schedule, self._replicas.ranks, pipeline.stages, pipeline.micro_batches // pipeline.replicas
        )
        self._cut: Cut | None = None
        self._times: list[float] = []
        self._holdings: Holdings | None = None
        self._early_trials: Trials | None = None  # `trials` would wait for data

    @property
    def shards(self) -> int | None:
        """The number of micro-batches."""
        return self._pipeline.micro_batches

    @property
    def division(self) -> split.Division:
        """Each rank has the micro-batches of its replica."""
        return self._replicas.division

    def keywords(self) -> dict[str, Any]:
        """The options, as `tnt.Model` takes them."""
        if self._is_released:
            raise UnsupportedError(
                "a pipeline cannot be copied or pickled once each rank holds a part of it: save it, and load the file"
            )
        return {**super().keywords(), **self._arguments.keywords()}

    @property
    def _is_released(self) -> bool:
        return self._holdings is not None and self._holdings.is_released

    # ------------------------------------------------------------------------------------------------------- the cut

    def open_hooks(self) -> PipelineHooks:
        """The hooks, which are made if there are none. Collective when it is called for the first time."""
        if self.hooks is None:
            refuse_stateful_layers(self.keras_model)
            model = self.keras_model
            if adapter.is_compiled(model) and adapter.is_jit_compiled(model):
                raise UnsupportedError("a pipeline and jit_compile=True cannot go together: compile with jit_compile=False")
            cut = self.cut
            assert self._holdings is not None  # they are made with the cut
            self._early_trials = None
            self.hooks = PipelineHooks(
                model,
                cut,
                self._schedule,
                self._replicas,
                self._holdings,
                in_tree=self._pipeline.reproducible,
                shard_optimizer=bool(self.options.shard_optimizer),
                on_renewal=self.likeness.forget_start,
            )
        return self.hooks

    @property
    def view(self) -> PipelineView:
        return self.open_hooks().view

    @property
    def cut(self) -> Cut:
        """The stages, which are made if there are none. Collective then."""
        if self._cut is None:
            model = self.keras_model
            if adapter.layer_graph(model) is None:
                raise UnsupportedError(
                    f"{model.name!r} has no layers to cut yet, as it does not know its input: give it a keras.Input, or "
                    "build it"
                )
            stages.check_alike(model, self._pipeline)
            x_spec = tf.nest.map_structure(_spec, adapter.layer_graph(model).input)
            found = trace.trace(model, x_spec)
            stage_of, self._times = stages.agreed(lambda: stages.stages_of_calls(model, self._pipeline, x_spec, found.tensors))
            self._cut = cuts.cut(model, stage_of, found)
            if self._pipeline.reproducible:
                cuts.refuse_other_sums(self._cut)
            by_rank = [(self._schedule.rank_of(s), self._cut.variables(s)) for s in range(self._pipeline.stages)]
            self._holdings = Holdings(by_rank, self._replicas.position)
            self._holdings.fill_deferred(model)
            runtime.logger.info("the stages of the pipeline:\n%s", self.table())
        return self._cut

    def held(self) -> Holdings | None:
        """Which rank holds what; None if all weights are on all ranks still. Collective if weights are deferred."""
        if any(map(deferred.is_deferred, adapter.weights(self.keras_model))):
            self.open_hooks()
        return self._holdings if self._is_released else None

    def table(self) -> str:
        """The stages as a table. Collective if there are none yet."""
        return stages.table(self.cut, self._schedule, self._times, self._replicas)

    # ---------------------------------------------------------------------------------------------- the shared state

    def refuse_unsupported(self, callbacks: Any) -> None:
        """Raises if one of the callbacks needs all weights on one rank."""
        super().refuse_unsupported(callbacks)
        kinds = adapter.callback_kinds("OrbaxCheckpoint", "SwapEMAWeights")
        for callback in adapter.callback_list(callbacks):
            if isinstance(callback, kinds) or bool(getattr(callback, "histogram_freq", False)):
                raise UnsupportedError(
                    f"{type(callback).__name__} needs all weights on one rank, and a pipeline spreads them: use "
                    "tnt.callbacks.Checkpoint, which also restores, or keras.callbacks.ModelCheckpoint, and leave out "
                    "histogram_freq"
                )

    def build(self, batch_spec: Any, step: str = "train_step") -> None:
        """Makes all variables of the compiled model; the optimizer has those of this rank's stages alone."""
        trained, model = self.open_hooks().updates.trained, self.keras_model
        optimizer = adapter.optimizer_of(model)
        if optimizer is not None:
            self._refuse_optimizer(optimizer)
            if not optimizer.built:
                adapter.build_optimizer(optimizer, trained)
            elif set(map(id, adapter.variables_of_optimizer(optimizer))) != set(map(id, trained)):
                model.optimizer = optimizer_for(optimizer, trained)
        super().build(batch_spec, step)

    def _refuse_optimizer(self, optimizer: Any) -> None:
        others = [n for n in adapter.named_optimizers(self.keras_model) if n != "optimizer"]
        if others:
            raise UnsupportedError(f"a pipeline has one optimizer, and {others[0]} of the model is another one")
        inner = adapter.optimizers_of(optimizer)[-1]
        why = trial.uncuttable_because(inner)
        if why is not None:
            raise UnsupportedError(
                f"a pipeline cannot be trained by {type(inner).__name__}, as each rank updates its own variables alone and "
                f"{why}: use an optimizer that overrides build and update_step only, or tnt.ParallelStrategy.DATA"
            )
        scales = inner is not optimizer or getattr(optimizer, "loss_scale_factor", None)
        accumulates = getattr(inner, "gradient_accumulation_steps", None)
        if getattr(inner, "global_clipnorm", None) and (scales or accumulates):
            why = "gradient_accumulation_steps=..." if accumulates else "a scaled loss"
            raise UnsupportedError(
                f"{type(inner).__name__}(global_clipnorm=...) and {why} cannot go together in a pipeline, which would need the "
                "norm of all gradients in the middle of the update: leave one of them out, or use clipnorm, which takes "
                "one variable at a time"
            )

    def start_alike(self, batch_spec: Any, validation_spec: Any = None) -> None:
        """Gives each rank rank 0's weights of its stages. Collective."""
        self.build(batch_spec)
        if validation_spec is not None:
            self.build(validation_spec, "test_step")
        self.broadcast_weights()
        self.likeness.is_started = True

    def broadcast_weights(self) -> None:
        """Gives all ranks rank 0's weights and random seeds, if no rank has given up those of others yet. Collective."""
        self.open_hooks()
        if not self._is_released:
            model = self.keras_model
            weights.broadcast([*adapter.weights(model), *shard_state.random_states(model)])

    def before_data(self, batch_spec: Any, steps: Sequence[str], is_divided: bool) -> None:
        """Tries the losses and the model on made-up samples, before ranks give up the weights of other stages. Collective."""
        if any(self.cut.masked):
            self.open_hooks().program_of_masks(adapter.batch_for_step(batch_spec)[0], True)  # or an error, on all ranks
        if self._early_trials is None:
            self._early_trials = self._new_trials(self.open_hooks())
        trials, holdings = self._early_trials, self._holdings
        if trials is not None and not trials.has_tried(steps):
            assert holdings is not None
            layers = [call.operation for call in adapter.layer_calls(self.cut.graph) if trace.variables_of(call)]
            with deferred.layer_by_layer(layers if self._is_released else [], lambda variable: not holdings.is_here(variable)):
                trials.run_on_made_up(batch_spec, steps, is_divided)
        if trials is not None and trials.loss_draws:
            raise UnsupportedError(trace.NOISE.format("a loss"))
        if sums := self.open_hooks().loss_kinds.kept("train_step")[1]:
            paths = ", ".join(map(adapter.path, sums))
            raise UnsupportedError(
                f"the training step adds samples up in {paths}, of which stages of a pipeline would keep the mean over "
                "micro-batches: count in a metric, or train without a pipeline"
            )
        self._release()

    def spread_weights(self) -> None:
        """Gives each rank rank 0's weights of its stages, of which it keeps no others. Collective."""
        self.broadcast_weights()
        self._release()

    def _release(self) -> None:
        if self._holdings is not None and not self._holdings.is_released:
            self._holdings.release()

    def forget_likeness(self) -> None:
        """Each rank has weights of its own."""

    def write(self, method: str, filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool) -> None:
        """Writes a file of the whole model, whose weights come to the ranks that write. Collective."""
        collectives.meet(f"tnt.Model.{method}")
        if self.held() is not None:
            self.open_hooks().gathering.write(filepath, write_to, on_all_ranks)
        else:
            files.write(filepath, write_to, on_all_ranks)


def _spec(tensor: Any) -> tf.TensorSpec:
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)
