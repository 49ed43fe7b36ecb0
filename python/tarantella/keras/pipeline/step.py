"""The training and test steps of a pipeline: each rank computes its row of the schedule, micro-batch by micro-batch.

Micro-batches are the shards of `tarantella.keras.reproducible`, with their random seeds, weights and trees of sums. So a
pipeline gives the bits of a serial reproducible training with as many shards. A rank computes the gradients of its stages. The
last stage has the loss and the metrics, whose states go to all ranks at the end of each step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.data import split
from tarantella.keras.pipeline import clipping, messages
from tarantella.keras.pipeline import cut as cuts
from tarantella.keras.pipeline.cut import Cut, StageGraph
from tarantella.keras.pipeline.messages import Mail
from tarantella.keras.reduction import collectives, gradients, ops
from tarantella.keras.reproducible.shard_state import ShardState, read
from tarantella.keras.reproducible.sharded_reduction import widened
from tarantella.keras.reproducible.sharded_step import DivisorsNeeded
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.keras.reproducible.step import ReproducibleHooks
from tarantella.keras.step import noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tarantella.keras.pipeline.replicas import Replicas
    from tarantella.keras.pipeline.schedule import Schedule, Task
    from tarantella.keras.step.patch import Attribute

Shards = list[tuple[Any, split.Share]]


class PipelineHooks(ReproducibleHooks):
    """The steps of a compiled model that is a pipeline.

    Args:
        cut: the model's stages.
        schedule: who computes what in a training step.
        replicas: of the pipeline.
    """

    holds_all_weights = False

    def __init__(self, model: Any, cut: Cut, schedule: Schedule, replicas: Replicas) -> None:
        super().__init__(model, replicas.micro_batches, None, lambda grads, variables: None, replicas.division)
        self.cut, self.schedule, self.replicas = cut, schedule, replicas
        self.stages = list(schedule.stages_of(replicas.position))
        own = {id(v) for stage in self.stages for v in cut.variables(stage)}
        self.trained = [v for v in adapter.trainable_variables(model) if id(v) in own]
        self.graph = StageGraph(cut)
        self._losses_draw = False

    def prepare(self) -> None:
        """There are no buckets."""

    def _attributes(self) -> list[Attribute]:
        return [*super()._attributes(), *self.graph.hooks()]

    def _optimizer_hooks(self, optimizer: Any) -> list[Attribute]:
        return []

    def _in_shards(self, original: Callable[[Any], Any], training: bool) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            return StepRun(self, self._unpacked(element), training).run()

        return step

    def _predict_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            return StepRun(self, split.unpack(element), training=None).run_to_predict()

        return step

    def states(self, training: bool) -> dict[int, ShardState]:
        """The state of each of this rank's stages when a step begins."""
        last, metrics = len(self.cut.calls) - 1, adapter.metric_variables(self._model)
        held = {s: [*self.cut.variables(s), *(metrics if s == last else [])] for s in self.stages}
        return {s: ShardState(self._model, training, {id(v) for v in variables}) for s, variables in held.items()}

    def computing(self, share: split.Share, training: bool) -> Any:
        """The context in which a stage computes a micro-batch."""
        return self._running_shard(share, training)

    def weight(self) -> tf.Tensor:
        """How much the micro-batch counts that is being computed."""
        return self.gradients.counted(self._step.weight())

    def refuse_noise(self) -> None:
        """Raises UnsupportedError if this rank's step, in a graph, draws from a generator that no layer holds."""
        if context.graph() is not None:
            cuts.refuse_noise(self._model, context.graph())

    def refuse_noise_of_losses(self, batch_spec: Any) -> None:
        """Tries the losses, and raises UnsupportedError on all ranks if one draws random numbers. Collective."""
        before = noise.number_of_draws()
        self.loss_trial.run(batch_spec)
        self._losses_draw |= noise.number_of_draws() > before
        if self._losses_draw:
            raise UnsupportedError(cuts.NOISE.format("a loss"))

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self._model

    def loss(self, batch: Any, y_pred: Any, training: bool) -> tf.Tensor:
        """The loss of a micro-batch, after the metrics have seen it."""
        self._step.is_last = False
        try:
            return adapter.loss_and_metrics(self._model, batch, y_pred, training)
        except DivisorsNeeded:
            raise UnsupportedError(
                "a pipeline has no place yet for a loss whose divisor depends on the whole batch (a mask that reaches the "
                "model's output, or reduction='mean_with_sample_weight'): end the mask before the output, use "
                "reduction='sum_over_batch_size', or tnt.ParallelStrategy.DATA"
            ) from None


class StepRun:
    """One step on this rank, in the graph that is being traced, or eagerly.

    Args:
        training: None for a prediction.
    """

    def __init__(self, hooks: PipelineHooks, shards: Shards, training: bool | None) -> None:
        self._hooks, self._shards, self._training = hooks, shards, bool(training)
        schedule, self._replicas = hooks.schedule if training else hooks.schedule.without_backward(), hooks.replicas
        self._row = schedule.rows[self._replicas.position]
        self._cut, self._last = hooks.cut, schedule.stages - 1
        self._last_rank = schedule.rank_of(self._last)
        self._mail = Mail(hooks.cut, schedule, self._replicas.position, self._rows_of, self._replicas.first_rank)
        self._states = {} if training is None else hooks.states(self._training)
        self._after: list[Any] = []  # operations and tensors with which the task before ends
        self._tapes: dict[Task, tuple[tf.GradientTape, dict[int, Any], Any]] = {}
        self._variables = {s: [v for v in hooks.trained if id(v) in set(map(id, self._cut.variables(s)))] for s in hooks.stages}
        self._gradients = {s: TreeSum() for s in hooks.stages}
        self._averages = {s: TreeSum() for s in hooks.stages}
        self._metrics = TreeSum()
        self._weights: dict[int, tf.Tensor] = {}
        self._has_gradient: set[int] = set()
        self._outputs: list[Any] = []

    def _rows_of(self, micro_batch: int) -> tuple[tf.Tensor, int | None]:
        first = tf.nest.flatten(self._shards[micro_batch][0])[0]
        return tf.shape(first, tf.int64)[0], first.shape[0]

    # ---------------------------------------------------------------------------------------------------- the tasks

    def run(self) -> Any:
        """The logs of the global batch, on every rank."""
        self._run_row()
        with tf.control_dependencies(self._after):
            sums = [self._sums(s) for s in self._hooks.stages] if self._training else []
            averages = {s: self._replicas.sums(_total(self._averages[s])) for s in self._states}
            self._after = self._mail.wait_for_sends() or self._after
        metrics = self._new_metrics()
        for stage, state in self._states.items():
            changes = [tf.cast(a, adapter.dtype_of(v)) for a, v in zip(averages[stage], state.averages, strict=True)]
            state.end([read(v) for v in state.metrics], changes)
        for variable, value in metrics:
            adapter.unwrap(variable).assign(value)
        if self._training:
            self._update(sums)
        self._hooks.refuse_noise()
        variables, values = [variable for variable, _ in metrics], [value for _, value in metrics]
        return adapter.results_with(variables, values, self._hooks.model.get_metrics_result)

    def _run_row(self) -> None:
        needs = [messages.needed_by(task, self._cut) for task in self._row]
        for task, now, following in zip(self._row, needs, [*needs[1:], []], strict=True):
            with tf.control_dependencies(self._after):
                self._after = [*self._after, *self._mail.expect([*now, *following])]
            with tf.control_dependencies(self._after):
                done = self._forward(task) if task.is_forward else self._backward(task)
                self._after = [] if tf.executing_eagerly() else _to_wait_for(done)

    def _received(self, task: Task) -> dict[int, tf.Tensor]:
        """The tensors of earlier stages that the task needs, with their masks, by key."""
        found: dict[int, tf.Tensor] = {}
        for message in messages.needed_by(task, self._cut):
            key, tensor = self._cut.crossings[message.crossing].key, self._mail.take(message)
            if message.part:
                adapter.set_mask(found[key], tensor)
            else:
                found[key] = tensor
        return found

    def _forward(self, task: Task) -> list[Any]:
        batch, share = self._shards[task.micro_batch]
        state = self._states.get(task.stage)
        if state is not None:
            state.begin_shard(self._replicas.division.own[task.micro_batch])
        received = self._received(task)
        watched = {key: tensor for key, tensor in received.items() if tensor.dtype.is_floating}
        tape = tf.GradientTape() if self._training else None
        with nullcontext() if state is None else self._hooks.computing(share, self._training):
            with tape or nullcontext():
                if tape is not None:
                    tape.watch(list(watched.values()))
                x = adapter.batch_for_step(batch)[0]
                output, values = self._hooks.graph.run(self._hooks.model, task.stage, x, received, self._training)
                target = None
                if task.stage == self._last and state is not None:
                    target = self._hooks.loss(batch, output, self._training)
            if state is not None:
                self._weights[task.micro_batch] = self._hooks.weight()
        done = self._send_values(task, values)
        if task.stage == self._last:
            self._outputs.append(output)
            done.extend(tf.nest.flatten(output))
        if target is not None:
            done.append(target)
            self._add_metrics(share)
        if state is not None and self._training:
            self._averages[task.stage].add(state.changes(state.averages), self._weights[task.micro_batch])
            self._tapes[task._replace(is_forward=False)] = tape, watched, values if target is None else target
        return done

    def _send_values(self, task: Task, values: dict[int, Any]) -> list[Any]:
        done: list[Any] = []
        for message in messages.sent_by(task, self._cut):
            key = self._cut.crossings[message.crossing].key
            part = self._hooks.graph.mask_of(key) if message.part else values[key]
            done.extend([part, *self._mail.send(message, part)])
        return done

    def _backward(self, task: Task) -> list[Any]:
        tape, watched, target = self._tapes.pop(task)
        variables, upstream = self._variables[task.stage], None
        if task.stage != self._last:
            target, upstream = self._upstream(task, {**target, **watched})
        found = tape.gradient(target, [*variables, *watched.values()], output_gradients=upstream)
        own, of_received = found[: len(variables)], dict(zip(watched, found[len(variables) :], strict=True))
        done: list[Any] = []
        for message in messages.sent_by(task, self._cut):
            key = self._cut.crossings[message.crossing].key
            gradient = of_received[key]
            gradient = tf.zeros_like(watched[key]) if gradient is None else tf.convert_to_tensor(gradient)
            done.extend([gradient, *self._mail.send(message, gradient)])
        self._has_gradient.update(id(v) for g, v in zip(own, variables, strict=True) if g is not None)
        dense = [widened(gradients.dense(g, v)) for g, v in zip(own, variables, strict=True)]
        self._gradients[task.stage].add(dense, self._weights[task.micro_batch])
        return [*done, *dense]

    def _upstream(self, task: Task, values: dict[int, Any]) -> tuple[list[Any], list[Any]]:
        """The stage's tensors that later stages needed, and their gradients: of those that it received, too."""
        found = {self._cut.crossings[m.crossing].key: self._mail.take(m) for m in messages.needed_by(task, self._cut)}
        return [values[key] for key in found], list(found.values())

    # ------------------------------------------------------------------------------------------------------ the end

    def _add_metrics(self, share: split.Share) -> None:
        states = [read(v) for v in self._states[self._last].metrics]
        self._metrics.add([tf.where(share.samples > 0, state, tf.zeros_like(state)) for state in states])

    def _new_metrics(self) -> list[tuple[Any, tf.Tensor]]:
        """The states of all metrics after the step, on every rank, each with its variable."""
        variables = adapter.metric_variables(self._hooks.model)
        new = [read(v) for v in variables]
        if self._last in self._states:
            with tf.control_dependencies(self._after):
                sums = zip(self._replicas.sums(_total(self._metrics)), variables, strict=True)
            new = self._states[self._last].with_metrics([tf.cast(s, adapter.dtype_of(v)) for s, v in sums])
        with tf.control_dependencies(self._after):
            new = [collectives.broadcast(tf.identity(state), self._last_rank) for state in new]
        return list(zip(variables, new, strict=True))

    def _sums(self, stage: int) -> list[tf.Tensor]:
        """The gradients of a stage's variables, of the global batch."""
        return self._replicas.sums(_total(self._gradients[stage]))

    def _update(self, sums: Sequence[Sequence[tf.Tensor]]) -> None:
        """Changes this rank's trained variables. sums: the gradients of each of its stages."""
        reduced: dict[int, Any] = {}
        for variables, totals in zip(self._variables.values(), sums, strict=True):
            for total, variable in zip(totals, variables, strict=True):
                reduced[id(variable)] = tf.cast(total, adapter.dtype_of(variable))
        grads = [reduced[id(v)] if id(v) in self._has_gradient else None for v in self._hooks.trained]
        model, optimizer = self._hooks.model, adapter.optimizer_of(self._hooks.model)
        if not optimizer.global_clipnorm:
            with context.applying():
                optimizer.apply(grads, self._hooks.trained)
            return
        of_model = adapter.trainable_variables(model)
        grads = clipping.by_global_norm(optimizer.global_clipnorm, grads, self._hooks.trained, of_model, self._replicas)
        with context.applying(), clipping.already_done(optimizer):
            optimizer.apply(grads, self._hooks.trained)

    def run_to_predict(self) -> Any:
        """The model's output for the global batch, on every rank."""
        self._run_row()
        with tf.control_dependencies(self._after):
            self._after = self._mail.wait_for_sends() or self._after
        with tf.control_dependencies(self._after):
            of_replicas = [self._outputs_of(replica) for replica in range(self._replicas.count)]
        sent = [self._in_order(parts) for parts in zip(*of_replicas, strict=True)]
        self._hooks.refuse_noise()
        values = {id(symbolic): tensor for symbolic, tensor in zip(self._cut.graph.outputs, sent, strict=True)}
        packed = adapter.layer_graph_outputs(self._cut.graph, values)
        return packed[0] if isinstance(packed, (list, tuple)) and len(packed) == 1 else packed

    def _outputs_of(self, replica: int) -> list[tf.Tensor]:
        """The outputs for the samples of a replica's micro-batches, one after the other, on every rank."""
        if self._outputs and self._replicas.division_of(replica) == self._replicas.division:
            counting = [
                [part[: share.samples] for part, (_, share) in zip(parts, self._shards, strict=True)]
                for parts in zip(*map(tf.nest.flatten, self._outputs), strict=True)
            ]
            outputs = [tf.concat(parts, 0) for parts in counting]
        else:
            rows = tf.size(tf.concat(self._places(replica), 0), tf.int64)
            outputs = [tf.zeros([rows, *spec.tail], spec.dtype) for spec in self._cut.outputs]
        root = self._replicas.with_position(self._last_rank)[replica]
        return [collectives.broadcast(tf.identity(tensor), root) for tensor in outputs]

    def _places(self, replica: int) -> list[tf.Tensor]:
        """The places in the batch of each micro-batch's samples: micro-batch m of n has ``batch[m::n]``."""
        division, total = self._replicas.division_of(replica), self._shards[0][1].total
        return [tf.range(tf.minimum(tf.cast(m, tf.int64), total), total, division.shards, tf.int64) for m in division.own]

    def _in_order(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The rows of all replicas in the order of the batch."""
        places = [place for replica in range(self._replicas.count) for place in self._places(replica)]
        return tf.gather(tf.concat(parts, 0), tf.math.invert_permutation(tf.concat(places, 0)))


def _to_wait_for(done: Sequence[Any]) -> list[Any]:
    """These operations, and copies of these tensors, which cost nothing in a graph.

    TensorFlow fuses no operation with a control edge into its neighbours, and a tanh that is not fused has other bits. Edges
    begin at copies, so a stage has the fused operations that one device has.
    """
    return [x if isinstance(x, tf.Operation) else tf.identity(x) for x in done]


def _total(tree: TreeSum) -> list[tf.Tensor]:
    """The sum, as the serial reproducible step has it."""
    if tree.is_empty:
        return []
    tensors, weight = tree.total()
    return ops.tree_add([tensors], [weight]) if tensors else []
