"""`tnt.optimizers.Optimizer`: a Keras optimizer that reduces gradients before it does anything else with them."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella import generations, runtime
from tarantella.errors import TarantellaError, UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.loops import guard, models, reducers
from tarantella.keras.loops.reducers import LoopReduction
from tarantella.keras.reduction import gradients, graph_order, ops
from tarantella.keras.step.accumulation import OptimizerHooks

__all__ = ["Optimizer"]


def Optimizer(optimizer: Any, name: str | None = None, group: Any = None) -> Any:
    """Makes an optimizer of Keras reduce the gradients of all ranks in `apply` and `apply_gradients`. Not collective itself.

    For training loops of one's own: `tnt.Model` reduces by itself and refuses such an optimizer. Clipping, loss scaling and
    the test for finite values act on reduced gradients. With ``gradient_accumulation_steps=k`` gradients are reduced once in k
    calls.

    `apply` and `apply_gradients` take two arguments more, one of which may be given: ``weight``, this rank's factor, and
    ``samples``, how many samples this rank's loss is the mean of. Without, each of n ranks counts 1/n
    (see `tnt.DistributedGradientTape.gradient`).

    Args:
        optimizer: any optimizer of Keras, built or not; also a `LossScaleOptimizer`. It is changed, not copied.
        name: another name for the optimizer; None leaves it as it is.
        group: all ranks, or None.

    Returns:
        The same object: its class, config, state and settable learning rate stay. Neither a file of it nor a
        copy knows of ranks: wrap what is loaded or copied again.

    Raises:
        TypeError: it is no optimizer of Keras. UnsupportedError: the group has not all ranks.

    Examples:
        >>> optimizer = tnt.optimizers.Optimizer(keras.optimizers.Adam(1e-3))
        >>> with tf.GradientTape() as tape:
        ...     loss = loss_fn(y, model(x))
        >>> optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    """
    if not adapter.is_optimizer(optimizer):
        raise TypeError(f"tnt.optimizers.Optimizer needs an optimizer of Keras, not {type(optimizer).__name__}")
    if group is not None and group.size != runtime.get_size():
        raise UnsupportedError("gradients of a part of the ranks are not reduced in this version: leave group out")
    if name is not None:
        optimizer.name = name
    if not is_distributed(optimizer):
        distribute(optimizer, LoopReduction)
    return optimizer


def distribute(optimizer: Any, reduction: Callable[[Any, Any], LoopReduction], passes: int = 1) -> None:
    """Makes an optimizer reduce gradients.

    Args:
        reduction: how those of one call are reduced, by its ``weight`` and ``samples``.
        passes: for legacy Keras: so many calls add up their gradients, and the last applies their mean.
    """
    models.install()
    _Methods(optimizer, reduction, passes).install()


def is_distributed(optimizer: Any) -> bool:
    """Whether the optimizer, or the one inside of a LossScaleOptimizer, reduces by itself."""
    return any(_has_methods(one) for one in adapter.optimizers_of(optimizer) if one is not None)


def is_scaled_outside(optimizer: Any) -> bool:
    """Whether a LossScaleOptimizer was put around an optimizer that reduces: each rank would decide alone to skip a step."""
    return is_distributed(optimizer) and not _has_methods(optimizer)


def _has_methods(optimizer: Any) -> bool:
    return isinstance(getattr(adapter.as_apply(optimizer.__dict__.get(adapter.optimizer_hook())), "__self__", None), _Methods)


class _Methods:
    """The methods that an optimizer gets; as its attributes, so that its class stays the same."""

    def __init__(self, optimizer: Any, reduction: Callable[[Any, Any], LoopReduction], passes: int) -> None:
        self._optimizer = optimizer
        self._passes = Passes(optimizer, passes) if passes > 1 else None
        self._make_reduction = reduction
        self._hooks = OptimizerHooks(optimizer, self)
        self._original = optimizer.apply_gradients
        self._call_options: dict[str, Any] = {}
        self._reduction: LoopReduction | None = None
        self._is_hooked = runtime.get_size() > 1 or generations.is_elastic()  # else Keras does everything between us and it

    def install(self) -> None:
        hook = adapter.optimizer_hook()
        self._apply = adapter.as_apply(getattr(self._optimizer, hook))
        for owner, name, method in self._hooks.functions() if self._is_hooked else []:
            if owner is self._optimizer and name == hook:
                self._apply = adapter.as_apply(method)
            else:
                object.__setattr__(owner, name, method)
        apply = self.apply if self._passes is None else self.accumulate
        for name, method in {"apply_gradients": self.apply_gradients, hook: adapter.as_method(apply)}.items():
            object.__setattr__(self._optimizer, name, method)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply(
        self, grads: Any, trainable_variables: Any = None, *, weight: Any = None, samples: Any = None, **kwargs: Any
    ) -> Any:
        """Keras' `apply`, after the gradients of all ranks were added up."""
        reducers.prepare("an optimizer of tnt.optimizers.Optimizer", "only the optimizer that was compiled can be used there")
        if not context.is_synchronised():
            raise TarantellaError(
                "an optimizer was applied inside of tnt.no_sync: each rank would change its weights by its own gradients. "
                "Add gradients up inside, and apply them outside"
            )
        grads = list(grads)
        reducers.refuse_reduced(grads)
        variables = list(trainable_variables or adapter.variables_of_optimizer(self._optimizer))
        guard.note_reduced(variables)
        models.try_out(variables)
        self._reduction = self._make_reduction(
            self._call_options.get("weight", weight), self._call_options.get("samples", samples)
        )
        try:
            with ops.translated_errors():
                if not self._is_hooked and trainable_variables is not None:
                    grads = self._reduction.reduce_gradients(grads, list(trainable_variables))
                return self._apply(grads, trainable_variables, **kwargs)
        finally:
            self._reduction = None

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def accumulate(self, grads: Any, trainable_variables: Any, **kwargs: Any) -> Any:
        """`apply`, in the last of several calls."""
        assert self._passes is not None
        return self._passes.apply(self.apply, list(grads), list(trainable_variables), **kwargs)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply_gradients(self, grads_and_vars: Any, *, weight: Any = None, samples: Any = None) -> Any:
        """Keras' `apply_gradients`, which calls `apply`."""
        self._call_options = {"weight": weight, "samples": samples}
        try:
            return self._original(grads_and_vars)
        finally:
            self._call_options = {}

    # -------------------------------------------------------------------- what the hooks ask for, in the call that runs

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any]:
        return self._running().reduce_gradients(grads, variables, weight)

    def weight(self) -> Any:
        return self._running().weight()

    def all_true(self, flag: Any) -> Any:
        return self._running().all_true(flag)

    def _running(self) -> LoopReduction:
        if self._reduction is None:
            raise TarantellaError("the inner optimizer of a LossScaleOptimizer was applied by itself: apply the outer one")
        return self._reduction


class Passes:
    """Adds up this rank's gradients, and applies their mean in each k-th call: only then do ranks exchange anything.

    For legacy Keras, whose optimizers cannot add them up by themselves.
    """

    def __init__(self, optimizer: Any, passes: int) -> None:
        self._optimizer = optimizer
        self._passes = passes
        self._sums: list[tf.Variable] = []
        self._calls: tf.Variable | None = None

    def apply(self, apply: Callable[..., Any], grads: Sequence[Any], variables: Sequence[Any], **kwargs: Any) -> Any:
        """apply: what applies the mean.

        Returns:
            The optimizer's `iterations`, which count all calls: schedules of the learning rate run by batches.
        """
        with tf.init_scope():
            calls = self._prepare(variables)
        for total, gradient, variable in zip(self._sums, grads, variables, strict=True):
            if gradient is not None:
                total.assign_add(gradients.dense(gradient, variable))
        calls.assign_add(1)

        def update() -> bool:
            means = [total / tf.cast(self._passes, total.dtype) for total in self._sums]
            apply([None if g is None else mean for g, mean in zip(grads, means, strict=True)], variables, **kwargs)
            for total in self._sums:
                total.assign(tf.zeros_like(total))
            return True

        def count() -> bool:
            self._optimizer.iterations.assign_add(1)
            return False

        with graph_order.after_last():
            updated = tf.cond(tf.equal(calls % self._passes, 0), update, count)
        graph_order.record([updated])
        return self._optimizer.iterations

    def _prepare(self, variables: Sequence[Any]) -> tf.Variable:
        if self._calls is None:
            adapter.build_optimizer(self._optimizer, variables)  # not inside of a branch
            self._sums = [tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in variables]
            self._calls = tf.Variable(0, trainable=False, dtype=tf.int64)
        return self._calls
