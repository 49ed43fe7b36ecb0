"""The metrics and logs of a step, brought together over ranks where Keras would just use them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import mark
from tarantella.keras import adapter
from tarantella.keras.reduction import collectives as tensor_collectives
from tarantella.keras.reduction import gradients
from tarantella.keras.reduction.reducer import Spec
from tarantella.keras.reduction.registry import ReducerRegistry
from tarantella.keras.step import batch_check, losses
from tarantella.keras.step.current_step import CurrentStep
from tarantella.keras.step.patch import Attribute, patched

_OTHER_PROPORTION = (
    "the batches of each rank have tensors of several sizes, in other proportions on other ranks: a rank counts by the samples "
    "of its first tensor, which would be wrong for the others. Give all ranks the same batch sizes, with drop_remainder=True, "
    "or state how many samples a batch has: tnt_batch_size=lambda batch: tf.shape(batch[1])[0] if there is one label for each"
)


class MetricReduction:
    """Gives the metrics of one model the states that they would have on one device."""

    def __init__(self, model: Any, reducers: ReducerRegistry, step: CurrentStep) -> None:
        self._model = model
        self._reducers = reducers
        self._step = step
        self.observe_sums: Callable[[Sequence[Any], Sequence[Any]], None] | None = None  # given variables and sums of each step
        self._were_asked_for = False  # by get_metrics_result, in this step
        self._model_results: dict[int, Any] = {}  # what that has given, by id
        self._by_all: dict[int, Any] = {}  # metrics that saw the samples of all ranks, by id
        self._updates: dict[int, int] = {}  # how often each mean was given a number in this step, by the metric's id
        self._results: dict[int, tuple[Any, Any, int]] = {}  # by id: tensor, metric, and place in `metric_results`

    def begin_step(self) -> None:
        """A step begins to be traced or run."""
        self._were_asked_for = False
        self._model_results, self._updates = {}, {}
        states = ((m, place, variable) for m in self._model.metrics for place, variable in enumerate(m.variables))
        self._results = {id(variable): (variable, m, place) for m, place, variable in states}  # logs may have these, too

    def hooks(self) -> list[Attribute]:
        """The methods of the model and its metrics to replace while it is trained or evaluated."""
        return [
            (self._model, "get_metrics_result", self._metrics_result(self._model.get_metrics_result)),
            *((m, "update_state", self._weighted_update(m, m.update_state)) for m in adapter.mean_metrics(self._model)),
            *(
                (m, "update_state", self._update_by_all(m, m.update_state))
                for m in adapter.given_metrics(self._model)
                if id(m) in self._step.loss_kinds.gathered_metrics
            ),
            *((m, "result", self._recorded_result(m, m.result)) for m in self._model.metrics),
        ]

    @contextmanager
    def counting_once(self) -> Iterator[None]:
        """Each rank for itself gives metrics the same samples in this context: the master's count in later sums over ranks."""
        if runtime.is_master_rank():
            yield
            return
        kept: dict[int, tf.Tensor] = {}  # the state of each variable before these samples, by its id
        reset = self._model.reset_metrics

        def note() -> None:
            kept.update({id(v): tf.identity(v) for v in map(adapter.unwrap, adapter.metric_variables(self._model))})

        def reset_metrics() -> None:
            reset()
            note()

        note()
        with patched(lambda: [(self._model, "reset_metrics", reset_metrics)]):
            yield
        for variable in map(adapter.unwrap, adapter.metric_variables(self._model)):
            variable.assign(kept.get(id(variable), tf.zeros_like(variable)))

    def _metrics_result(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def get_metrics_result() -> Any:
            variables = adapter.metric_variables(self._model)
            self._were_asked_for = True
            if self._reduces_in_step():
                return self._noted_results(adapter.results_with(variables, self._reduced_states(variables), original))
            if self._step.is_running:
                if self.observe_sums is not None:
                    self._reduced_states(variables)
                return self._noted_results(original())

            def add_up() -> Any:  # states are read anew if ranks that were lost have left theirs to others
                own = self._summands(variables, [adapter.unwrap(v) for v in variables])
                return collectives.all_reduce_each([np.asarray(state) for state in own])

            sums = collectives.as_one(add_up)
            return adapter.results_with(variables, [tf.convert_to_tensor(s) for s in sums], original)

        return get_metrics_result

    def _reduces_in_step(self) -> bool:
        """Whether this step reduces states. In `evaluate` and validation they are reduced after the last batch."""
        return self._step.is_running and (self._step.is_training or self._step.is_single_batch)

    def _noted_results(self, results: Any) -> Any:
        self._model_results.update((id(leaf), leaf) for leaf in tf.nest.flatten(results))
        return results

    def _weighted_update(self, metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """A mean that is given one number for a batch, such as an output's loss, counts it by the rank's part of the batch."""

        def update_state(values: Any, sample_weight: Any = None) -> Any:
            place = self._updates[id(metric)] = self._updates.get(id(metric), -1) + 1
            if (self._name_of_step(), id(metric), place) in self._step.loss_kinds.summed_updates:
                values = self._as_mean(values)
            if sample_weight is None and self._step.is_running and tf.convert_to_tensor(values).shape.rank == 0:
                sample_weight = tf.cast(self._step.weight(), tf.float32)
            elif sample_weight is not None and self._step.is_stated() and not self._step.counts_alone():
                sample_weight = self._part_of(sample_weight)
            return original(values, sample_weight=sample_weight)

        return update_state

    def _part_of(self, rows: Any) -> tf.Tensor:
        """This rank's part of what Keras counts a batch by: the rows of a tensor, which are no samples here.

        Keras takes the mean over batches of their losses, weighted by these rows; ranks that of their losses, by samples.
        """
        all_rows = tensor_collectives.total(tf.cast(rows, tf.float64))
        return tf.cast(all_rows * self._step.weight(), tf.float32)

    def _update_by_all(self, metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """A metric whose states cannot be added up is given the samples of all ranks, on each of them."""

        def update_state(*args: Any, **kwargs: Any) -> Any:
            total = self._step.total() if self._step.is_running else None
            self._by_all.pop(id(metric), None)
            if total is not None:
                self._by_all[id(metric)] = metric
                args, kwargs = losses.gathered_rows((args, kwargs), total)
            return original(*args, **kwargs)

        return update_state

    def _summands(self, variables: Sequence[Any], states: Sequence[Any]) -> list[tf.Tensor]:
        """The states, whose sum over ranks is taken: those of metrics that saw all samples count on the master alone."""
        by_all = {id(variable) for metric in self._by_all.values() for variable in metric.variables}
        counts = [runtime.is_master_rank() or id(variable) not in by_all for variable in variables]
        return [tf.convert_to_tensor(s) if c else tf.zeros_like(s) for s, c in zip(states, counts, strict=True)]

    def _name_of_step(self) -> str:
        if not self._step.is_running:
            return ""
        return "train_step" if self._step.is_training else "test_step"

    def _as_mean(self, value: Any) -> tf.Tensor:
        """A sum over this rank's samples, as the number whose mean, weighted by samples, is the sum over those of all ranks."""
        if self._step.counts_alone():
            return value
        number = tf.convert_to_tensor(value)
        scaled = tf.math.divide_no_nan(tf.cast(number, tf.float64), self._step.weight())
        return tf.cast(scaled, number.dtype if number.dtype.is_floating else tf.float32)

    def with_sums_scaled(self, name: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step of this name; numbers in its logs that are sums over samples are scaled so that their mean is right."""
        summed = self._step.loss_kinds.summed_logs  # which a trial fills before the step is traced

        def step(batch: Any) -> Any:
            logs = original(batch)
            if not any((name, place) in summed for place in range(len(tf.nest.flatten(logs)))):
                return logs
            leaves = [self._as_mean(v) if (name, i) in summed else v for i, v in enumerate(tf.nest.flatten(logs))]
            return tf.nest.pack_sequence_as(logs, leaves)

        return step

    def _recorded_result(self, metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
        """Remembers which tensors are results of the metric, to know them in the logs of a user's own training step."""

        def result() -> Any:
            value = adapter.as_tensors(original())  # each has an id of its own, also if it is a state
            for place, leaf in enumerate(tf.nest.flatten(value), len(metric.variables)):
                self._results[id(leaf)] = (leaf, metric, place)  # keeps the leaf: no other object may get its id
            return value

        return result

    # ---------------------------------------------------------------------------------------------------- logs

    def reduced_logs(self, logs: Any) -> Any:
        """The logs of the global batch, of those that a user's own step returned.

        A metric's result is computed from the reduced states; any other number becomes its mean over the samples.
        """
        if not isinstance(logs, dict):
            return logs
        leaves = tf.nest.flatten(logs)
        if self._were_asked_for and all(id(leaf) in self._model_results for leaf in leaves):
            return logs
        are_reduced = self._model_results if self._reduces_in_step() else {}
        recorded = {i: found for i, found in self._results.items() if i not in are_reduced}
        others = [leaf for leaf in leaves if id(leaf) not in recorded and id(leaf) not in are_reduced]
        results: dict[int, list[Any]] = {}
        if not self._were_asked_for or any(id(leaf) in recorded for leaf in leaves):
            variables = adapter.metric_variables(self._model)
            states = self._reduced_states(variables)
            results = adapter.results_with(variables, states, lambda: adapter.metric_results(self._model))
        means = iter(self._means(others))
        reduced = []
        for leaf in leaves:
            if id(leaf) in are_reduced:
                reduced.append(leaf)
            elif id(leaf) in recorded:
                _, metric, place = recorded[id(leaf)]
                reduced.append(results[id(metric)][place])
            else:
                reduced.append(next(means))
        return tf.nest.pack_sequence_as(logs, reduced)

    def _means(self, values: list[Any]) -> list[tf.Tensor]:
        """The mean of each number over the samples of all ranks."""
        if not values:
            return []
        tensors = [tf.convert_to_tensor(value) for value in values]
        flat = [tf.reshape(tf.cast(t, tf.float64), [-1]) for t in tensors]
        sums = tensor_collectives.total(gradients.weighted(tf.concat(flat, 0), self._step.weight()))
        means = tf.split(sums, [f.shape[0] for f in flat])
        return [tf.cast(tf.reshape(mean, t.shape), t.dtype) for mean, t in zip(means, tensors, strict=True)]

    # -------------------------------------------------------------------------------------------------- states

    def _reduced_states(self, variables: list[Any]) -> list[tf.Tensor]:
        states = self._step.read_unchanged_if_empty(variables)
        return self._sums_of_states(variables, self._summands(variables, states))

    def _sums_of_states(self, variables: list[Any], states: Sequence[Any]) -> list[tf.Tensor]:
        """The sums over ranks of metric states. The same bucket carries a check that all ranks saw the same batch."""
        size, rank, specs = runtime.get_size(), runtime.get_rank(), gradients.specs(variables)
        own, zero = self._step.share.fingerprint, tf.constant(0, tf.int64)
        fingerprints = tf.one_hot(rank, size, on_value=own, off_value=zero, dtype=tf.int64)
        specs.append(Spec("fingerprint of the batch", size, "int64"))
        *sums, fingerprints = self._reducers.reducer("metrics", specs, variables).reduce([*states, fingerprints])
        is_same = tf.reduce_all(fingerprints == fingerprints[0])
        if self._step.share.total is None:
            checks = [tf.debugging.Assert(is_same, [mark("TNT_MISMATCH", _OTHER_PROPORTION)])]
        else:
            checks = batch_check.checked(is_same, self._step.share, lambda: self._step.given)
        with tf.control_dependencies([check for check in checks if check is not None]):
            sums = [tf.identity(s) for s in sums]
        if self.observe_sums is not None:
            self.observe_sums(variables, sums)
        return sums
