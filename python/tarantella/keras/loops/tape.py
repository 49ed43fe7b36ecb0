"""`tnt.DistributedGradientTape`: the gradients of all ranks, in a training loop of one's own."""

from types import TracebackType
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import context
from tarantella.keras.loops import guard, models, reducers
from tarantella.keras.loops.reducers import LoopReduction
from tarantella.keras.reduction import gradients, ops, weights


class DistributedGradientTape:
    """A `tf.GradientTape` whose `gradient` gives what all ranks together have: each rank's gradients, weighted and added up.

    By default each of n ranks counts 1/n: the mean over ranks of each rank's gradient, which is that of the mean over all
    samples if every rank has as many and its loss is their mean. With ``samples=`` ranks count by their samples.

    Args:
        tape: a `tf.GradientTape`, in use already or to be entered through this one.

    Examples:
        >>> with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
        ...     loss = tf.reduce_mean(tf.square(model(x) - y))
        >>> gradients = tape.gradient(loss, model.trainable_variables, samples=tf.shape(x)[0])
        >>> optimizer.apply(gradients, model.trainable_variables)
    """

    def __init__(self, tape: tf.GradientTape) -> None:
        if not isinstance(tape, tf.GradientTape):
            raise TypeError(f"tnt.DistributedGradientTape needs a tf.GradientTape, not {type(tape).__name__}")
        self._tape = tape
        models.install()

    def __enter__(self) -> "DistributedGradientTape":
        self._tape.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._tape.__exit__(kind, value, traceback)

    def __getattr__(self, name: str) -> Any:
        if name in ("jacobian", "batch_jacobian"):
            raise UnsupportedError(f"{name} is not reduced over ranks: call it on the tf.GradientTape for this rank's own")
        return getattr(self._tape, name)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
        *,
        weight: Any = None,
        samples: Any = None,
    ) -> Any:
        """The sum over ranks of each rank's weighted gradients. Collective, but not inside of `tnt.no_sync`.

        Args:
            target, output_gradients, unconnected_gradients: as `tf.GradientTape.gradient` takes them.
            sources: variables of Keras or TensorFlow, in any structure: the same on all ranks.
            weight: this rank's factor, a number or scalar tensor; 1 gives the plain sum. 0: this rank does not count,
                whatever its gradients hold.
            samples: how many samples this rank's loss is the mean of, an integer or scalar tensor: its weight is their part of
                all ranks' samples. 0 is allowed; gradients are zero if no rank has any.

        Returns:
            A structure like `sources`. An embedding's may be `tf.IndexedSlices`, with the rows of all ranks.

        Raises:
            MismatchError: ranks have other variables. UnsupportedError: inside a step of `tnt.Model`, which reduces itself.
            PeerLostError, DeadlineError: a rank is missing. In a `tf.function` TensorFlow wraps the sentence in its own error.
        """
        reducers.prepare("tnt.DistributedGradientTape", "use a plain tf.GradientTape there")
        variables = tf.nest.flatten(sources)
        weights.check_variables(variables, "tnt.DistributedGradientTape.gradient")
        reduction = LoopReduction(weight, samples)
        with context.weighted(reduction.weight):
            grads = self._tape.gradient(target, sources, output_gradients, unconnected_gradients)
        if not context.is_synchronised():
            if weight is not None or samples is not None:
                raise ValueError("inside tnt.no_sync nothing is weighted: give weight or samples where gradients are reduced")
            return grads
        guard.note_reduced(variables)
        models.try_out(variables)
        with ops.translated_errors():
            reduced = reduction.reduce_gradients(gradients.flatten_up_to(sources, grads), variables)
        return tf.nest.pack_sequence_as(sources, reducers.mark(reduced))
