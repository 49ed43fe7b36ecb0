"""What a step changes before its weights: copies of it, to which a failed step goes back, and what lost ranks had of it.

Optimizers change weights and their own state last, when nothing can fail any more (`step/atomic.py`). Before that, a step
changes metrics, BatchNormalization's averages, the seeds of noise, and what its trace has shown. A value that was read is a
copy: TensorFlow gives a variable new memory when it changes while somebody holds the old one.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella import collectives, generations, runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import own_variable, variables_read
from tarantella.keras.checkpoint import state
from tarantella.keras.elastic.ended_state import EndedState, reading
from tarantella.keras.reduction import weights
from tarantella.keras.xla import operations


class KeptState:
    """The state of a model that is trained.

    Args:
        model: the Keras model.
        is_same: whether all ranks have the same state after each step. Otherwise each has a part of its own of metrics.

    Attributes:
        ended: the state with which the last operation ended.
    """

    def __init__(self, model: Any, is_same: bool) -> None:
        self._model, self._is_same = model, is_same
        self._variables: list[Any] | None = None
        self._early: dict[int, Any] = {}  # the handles of variables that traced steps change early, by their ids
        self._foreign: dict[int, tf.Variable] = {}  # of these variables, those that the step reads, the model's or not
        self._others: list[tf.Variable] | None = None  # that the last traced step uses, and of which the model does not know
        self._given: list[Any] | None = None  # the values of these that another rank has, for the next trace
        self._copies: Sequence[tuple[tf.Variable, tf.Tensor]] = ()
        self._sums: dict[int, tf.Variable] = {}  # of metrics' states over ranks after the last step, by the variables' ids
        self._spare: dict[
            int, tf.Variable
        ] = {}  # for such sums; TensorFlow traces twice what makes variables when it is traced
        self._summed: list[Any] | None = None  # the metrics' variables that have sums
        self._own_metrics: dict[int, tf.Tensor] = {}  # what this rank had of them when the last step ended, if it was noted
        self.ended = EndedState(self._known_alike)
        self.has_sums = False
        """Whether those are of the metrics as they are now: not if these were reset since."""

    def copy(self, is_traced: bool) -> None:
        """Notes the state with which a step begins. is_traced: whether it is known what the step changes early."""
        if not is_traced:
            metrics = adapter.metric_variables(self._model)
            self._spare.update((id(v), _zeros(adapter.unwrap(v))) for v in metrics if id(v) not in self._spare)
            variables = [*map(adapter.unwrap, self._known()), *self._foreign.values(), *self._sums.values()]
            self._copies = [(variable, variable.read_value()) for variable in variables]
            return
        if self._variables is None:
            self._variables = self._changed_early()
            self._read = reading(self._variables)
        self._copies = list(zip(self._variables, self._read(), strict=True))

    def put_back(self) -> None:
        """Gives the model the state that was copied last."""
        for variable, value in self._copies:
            variable.assign(value)

    def note(self) -> None:
        """An operation has changed the state, and callbacks may change it next."""
        self.ended.note()
        if not self._is_same:
            if self._summed is None:
                self._summed = [v for v in adapter.metric_variables(self._model) if id(v) in self._sums]
            self._own_metrics = {id(v): adapter.unwrap(v).read_value() for v in self._summed}

    def pass_over(self) -> None:
        """An operation has changed the state, and nothing else does until the next one, or until `ended.note` is called."""
        self.ended.pass_over()
        self._own_metrics = {}

    def note_trace(self, graph: Any, early: Sequence[Any]) -> None:
        """As `atomic.atomic` tells it."""
        self._early.update((id(handle), handle) for handle in early)
        self._foreign.update((id(v.handle), v) for v in variables_read(graph) if id(v.handle) in self._early)
        self._variables = None
        self.ended.forget_variables()
        self._others = [v for v in operations.unknown(graph, self._known()) if v.dtype.is_numpy_compatible]
        if self._given is not None:
            with tf.init_scope():
                self._take_others(self._given)

    def _take_others(self, values: list[Any]) -> None:
        """Variables of which the model does not know get the values of another rank, now or when a step is traced."""
        if self._others is None:
            self._given = values
            return
        self._given = None
        if [value.shape for value in values] != [tuple(variable.shape) for variable in self._others]:
            raise generations.refusal("its training step uses other variables than that of the others")
        for variable, value in zip(self._others, values, strict=True):
            variable.assign(value)

    def keep_sums(self, variables: Sequence[Any], sums: Sequence[tf.Tensor]) -> None:
        """A step has added up the states of metrics over ranks. In its graph, or eagerly."""
        for variable, total in zip(variables, sums, strict=True):
            if id(variable) not in self._sums:
                with tf.init_scope():
                    spare = self._spare.get(id(variable))
                    self._sums[id(variable)] = _zeros(total) if spare is None else spare
                    self._variables = self._summed = None
            self._sums[id(variable)].assign(total)

    def share(self, source: int | None, takes: bool) -> None:
        """Brings the ranks of a new generation together. Collective.

        Args:
            source: the rank that has made the last step, if others have not.
            takes: whether this rank takes the state of that one. Otherwise its own is as good.
        """
        self.ended.let_go()
        self._drop_sums(takes)
        sums = self._sums_by_place()
        if source is not None:
            weights.broadcast(self._known(), source, takes)
            others = None if self._others is None else [variable.numpy() for variable in self._others]
            sums, others = collectives.broadcast_object([sums, others], source)
            self.has_sums = sums is not None
            if takes and others is not None:
                self._take_others(others)
        if self._is_same or sums is None:
            return
        variables = adapter.metric_variables(self._model)
        for place, total in sums.items():
            inner = adapter.unwrap(variables[place])
            self.keep_sums([variables[place]], [tf.constant(total)])
            inner.assign(total if runtime.is_master_rank() else tf.zeros_like(total))

    def _drop_sums(self, takes: bool) -> None:
        """Drops those of metrics that callbacks have changed since, such as reset. Collective. takes: as for `share`."""
        if self._is_same:
            return
        metrics = adapter.metric_variables(self._model)
        noted = {} if takes else self._own_metrics
        kept = [(place, adapter.unwrap(v).numpy(), noted[id(v)].numpy()) for place, v in enumerate(metrics) if id(v) in noted]
        changed = [place for place, now, before in kept if now.tobytes() != before.tobytes()]
        for place in set().union(*all_gather_object(changed)):
            self._sums.pop(id(metrics[place]), None)
        self._own_metrics, self._variables, self._summed = {}, None, None

    def _sums_by_place(self) -> dict[int, Any] | None:
        """The sums of metrics' states as they are now, by the variables' places; None if there are none."""
        if not self.has_sums:
            return None
        variables = enumerate(adapter.metric_variables(self._model))
        return {place: self._sums[id(v)].numpy() for place, v in variables if id(v) in self._sums}

    def compare(self) -> None:
        """Checks that the ranks of a new generation have the same weights. Collective. Raises MismatchError."""
        alike = [*adapter.trainable_variables(self._model), *adapter.whole_optimizer_variables(self._model)]
        weights.compare(alike, "after ranks were lost")

    def _changed_early(self) -> list[tf.Variable]:
        late = {id(v) for v in (*adapter.trainable_variables(self._model), *adapter.optimizer_variables(self._model))}
        found = dict(self._foreign)
        for outer in self._known():
            variable = adapter.unwrap(outer)
            if id(outer) not in late or id(variable.handle) in self._early:
                found[id(variable.handle)] = variable
        return [*found.values(), *self._sums.values()]

    def _known(self) -> list[Any]:
        return [variable for variables in state.groups_of(self._model).values() for variable in variables]

    def _known_alike(self) -> list[Any]:
        """Of the variables that the model knows, those that are the same on all ranks, or that ranks take from another one."""
        own = set() if self._is_same else {id(variable) for variable in adapter.metric_variables(self._model)}
        return [variable for variable in self._known() if id(variable) not in own]


def _zeros(like: tf.Variable | tf.Tensor) -> tf.Variable:
    return own_variable(tf.zeros(like.shape, like.dtype))
