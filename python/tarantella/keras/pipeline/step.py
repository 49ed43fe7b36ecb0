"""One step of a pipeline: each rank computes its row of the schedule, micro-batch by micro-batch.

Micro-batches are the shards of `tarantella.keras.reproducible`, with their random seeds, weights and trees of sums. So a
pipeline gives the bits of a serial reproducible training with as many shards. A rank computes the gradients of its stages. The
last stage has the loss and the metrics, whose states go to all ranks at the end of each step.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.data import split
from tarantella.keras.pipeline import messages, updates
from tarantella.keras.pipeline.crossings import Kind
from tarantella.keras.pipeline.divisors import Divisors
from tarantella.keras.pipeline.layer_losses import key_of
from tarantella.keras.pipeline.messages import Mail
from tarantella.keras.pipeline.rank_model import RankModel
from tarantella.keras.reduction import collectives, gradients, ops, sparse
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.reproducible.shard_state import read
from tarantella.keras.reproducible.sharded_reduction import widened
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.keras.step import batch_check
from tarantella.pipeline_schedule import Task

Shards = list[tuple[Any, split.Share]]


class StepRun:
    """One step on this rank, in the graph that is being traced, or eagerly.

    Args:
        training: None for a prediction.
    """

    def __init__(self, hooks: RankModel, shards: Shards, training: bool | None) -> None:
        self._hooks, self._shards, self._training = hooks, shards, bool(training)
        schedule = hooks.schedule if training else hooks.schedule.without_backward()
        self._replicas, self._updates = hooks.replicas, hooks.updates
        self._row = schedule.rows[self._replicas.position]
        self._cut, self._last = hooks.cut, schedule.stages - 1
        self._last_rank = schedule.rank_of(self._last)
        self._mail = Mail(hooks.cut, schedule, self._replicas.position, self._rows_of, self._replicas.first_rank)
        self._states = {} if training is None else hooks.states(self._training)
        # operations and tensors with which the task before ends; at first the data: a step without, with which Keras ends an
        # epoch of unknown length, must neither touch state nor wait for messages
        self._after: list[Any] = [] if tf.executing_eagerly() else [t for t in tf.nest.flatten(shards) if tf.is_tensor(t)]
        self._tapes: dict[Task, tuple[tf.GradientTape, dict[int, Any], Any]] = {}
        self._differentiable = {c.key for c in self._cut.crossings_of_kind(Kind.TENSOR) if c.is_differentiable}
        in_order = adapter.trainable_variables(hooks.model)
        self._variables = {s: _among(in_order, self._cut.variables(s)) for s in hooks.stages}
        self._owned = {s: _among(in_order, self._cut.owned(s)) for s in hooks.stages}
        self._gradients = {s: hooks.new_sum() for s in hooks.stages}
        self._averages = {s: TreeSum() for s in hooks.stages}
        self._metrics = TreeSum()
        self._weights: dict[int, tf.Tensor] = {}
        self._raw: dict[int, Any] = {}  # the last gradient of each variable that has one, as the tape made it
        self._outputs: list[Any] = []

    def _rows_of(self, micro_batch: int) -> tuple[tf.Tensor, int | None]:
        first = tf.nest.flatten(self._shards[micro_batch][0])[0]
        return tf.shape(first, tf.int64)[0], first.shape[0]

    # ---------------------------------------------------------------------------------------------------- the tasks

    def run(self) -> Any:
        """The logs of the global batch, on every rank."""
        if self._last in self._states:
            self._hooks.set_divisors(Divisors(self._hooks, self._training).batch_divisors(self._shards))
        try:
            self._run_row()
        finally:
            self._hooks.set_divisors(None)
        with tf.control_dependencies(self._after):
            sums = self._sums() if self._training else {}
            averages = {s: self._replicas.sums(_total(self._averages[s])) for s in self._states}
            self._after = self._mail.wait_for_sends() or self._after
        with tf.control_dependencies(self._checked_batch()):
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
        with tf.control_dependencies(self._after):
            self._after = self._mail.mark() or self._after
        for task, now, following in zip(self._row, needs, [*needs[1:], []], strict=True):
            with tf.control_dependencies(self._after):
                self._after = [*self._after, *self._mail.expect([*now, *following])]
            with tf.control_dependencies(self._after):
                done = self._forward(task) if task.is_forward else self._backward(task)
                ended = [] if tf.executing_eagerly() else _to_wait_for(done)
            with tf.control_dependencies(ended):
                self._after = self._mail.mark(task)

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
        watched = {key: tensor for key, tensor in received.items() if key in self._differentiable}
        tape = tf.GradientTape() if self._training else None
        with nullcontext() if state is None else self._hooks.computing(share, self._training):
            with tape or nullcontext():
                if tape is not None:
                    tape.watch(list(watched.values()))
                x = adapter.batch_for_step(batch)[0]
                output, values = self._hooks.graph.run(self._hooks.model, task.stage, x, received, self._training)
                losses, target = self._losses_of_layers(task.stage, values, state is not None), None
                if task.stage == self._last and state is not None:
                    added = self._cut.losses.in_order(losses, received, self._training)
                    target = self._scaled(self._hooks.loss(batch, output, self._training, added))
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
            self._tapes[task._replace(is_forward=False)] = tape, watched, (values, losses) if target is None else target
        return done

    def _scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss whose gradients are computed. An optimizer for float16 multiplies it by a factor that all ranks know."""
        if not self._training:
            return loss
        scaled: tf.Tensor = getattr(adapter.optimizer_of(self._hooks.model), adapter.scale_hook())(loss)
        return scaled

    def _losses_of_layers(self, stage: int, values: dict[int, Any], is_wanted: bool) -> list[tf.Tensor]:
        """The losses that the stage adds; among its values as they travel, if it is not the last one."""
        losses = self._cut.losses.stage_losses(self._hooks.model, stage, self._training) if is_wanted else []
        if stage != self._last:
            values[key_of(stage)] = self._cut.losses.packed(stage, losses)
        return losses

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
        later_gradients = {self._cut.crossings[m.crossing].key: self._mail.take(m) for m in messages.needed_by(task, self._cut)}
        if task.stage != self._last:
            values, losses = target
            values = {**values, **watched}
            tensors = [key for key in later_gradients if key in values]
            target = [*(values[key] for key in tensors), *losses]
            upstream = [*(later_gradients[key] for key in tensors), *(self._scaled(tf.ones_like(loss)) for loss in losses)]
        found = tape.gradient(target, [*variables, *watched.values()], output_gradients=upstream)
        own, received_gradients = found[: len(variables)], dict(zip(watched, found[len(variables) :], strict=True))
        raw = {id(v): later_gradients.get(id(v)) if g is None else g for g, v in zip(own, variables, strict=True)}
        self._raw.update((key, gradient) for key, gradient in raw.items() if gradient is not None)
        sparse.warn_of_repeated_rows(self._hooks.model, own, "a pipeline")
        dense = {
            id(v): _with_later(gradients.dense(g, v), later_gradients.get(id(v))) for g, v in zip(own, variables, strict=True)
        }
        done: list[Any] = []
        for message in messages.sent_by(task, self._cut):
            key = self._cut.crossings[message.crossing].key
            gradient = dense[key] if key in dense else received_gradients[key]
            gradient = tf.zeros_like(watched[key]) if gradient is None else tf.convert_to_tensor(gradient)
            done.extend([gradient, *self._mail.send(message, gradient)])
        owned = [widened(dense[id(v)]) for v in self._owned[task.stage]]
        self._gradients[task.stage].add(owned, self._weights[task.micro_batch])
        return [*done, *owned]

    # ------------------------------------------------------------------------------------------------------ the end

    def _checked_batch(self) -> list[Any]:
        """A check that all ranks took parts of the same batch, to be made before anything changes. Collective."""
        own = self._shards[0][1].fingerprint
        with tf.control_dependencies(self._after):
            largest = collectives.all_reduce(tf.stack([own, tf.bitwise.invert(own)]), "max")
        is_same = tf.equal(largest[0], tf.bitwise.invert(largest[1]))
        return batch_check.checked(is_same, self._shards[0][1], self._hooks.given)

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

    def _sums(self) -> dict[int, tf.Tensor]:
        """The gradients of the global batch, for the variables that this rank updates, by their ids."""
        found: dict[int, tf.Tensor] = {}
        for stage, variables in self._owned.items():
            found.update(self._updates.sums(variables, _total(self._gradients[stage])))
        return found

    def _update(self, sums: dict[int, tf.Tensor]) -> None:
        """Changes the variables that this rank updates. sums: their gradients, by their ids."""
        trained = self._updates.trained
        grads = [tf.cast(sums[id(v)], adapter.dtype_of(v)) if id(v) in self._raw else None for v in trained]
        model, optimizer = self._hooks.model, adapter.optimizer_of(self._hooks.model)
        if len(adapter.optimizers_of(optimizer)) > 1:  # a LossScaleOptimizer skips a step that overflowed
            raw, scale = [self._raw.get(id(v)) for v in trained], adapter.scale_of_gradients(optimizer)
            grads = [g if g is None else gradients.in_range_of_float16(g, r, scale) for g, r in zip(grads, raw, strict=True)]
        trained_variables = adapter.trainable_variables(model)
        fingerprint.record_gradients(model, grads, trained, self._hooks.view)
        if optimizer.global_clipnorm:
            grads = updates.clipped_by_global_norm(optimizer.global_clipnorm, grads, self._updates, trained_variables)
        with context.applying(), updates.already_clipped(optimizer):
            optimizer.apply(grads, trained)
        self._updates.share()
        updates.send_new_values(trained_variables, self._cut, self._hooks.schedule, self._replicas)

    def run_to_predict(self) -> Any:
        """The model's output for the global batch, on every rank."""
        self._run_row()
        with tf.control_dependencies(self._after):
            self._after = self._mail.wait_for_sends() or self._after
        with tf.control_dependencies([*self._after, *self._checked_batch()]):
            replica_outputs = [self._outputs_of(replica) for replica in range(self._replicas.count)]
        sent = [self._in_order(parts) for parts in zip(*replica_outputs, strict=True)]
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


def _with_later(gradient: tf.Tensor, later: tf.Tensor | None) -> tf.Tensor:
    """A gradient, with that of the later stages that use the variable, too. Both are of one micro-batch."""
    return gradient if later is None else later + gradient


def _among(variables: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
    """Those of the variables that are among the chosen ones, in their order."""
    ids = set(map(id, chosen))
    return [v for v in variables if id(v) in ids]


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
