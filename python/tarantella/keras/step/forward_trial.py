"""Finds out whether a model's output for a sample depends on the other samples of its batch, before the first step.

A layer of the user's own may do that, for example by subtracting the mean of the batch. So a model with such layers is called
on three made-up samples, and on two and one of them. It is called as for prediction: what normalises by a batch in training
alone couples samples by design, as BatchNormalization does. A step of the user's own is tried as a whole (`step_trial`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.step import made_up, step_run, trial, verdict
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from tarantella.keras.step.trial import Answer

PARTS = Parts(2, 1)


class ForwardTrial:
    """The trial of a model's outputs."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._was_run = False
        self._said: list[str] = []
        self._verdict = verdict.Verdict(verdict.WAYS_OUT_OF_STEP, "the mean of the ranks' gradients is used")

    def run(self, batch_spec: Any) -> None:
        """Compares the outputs once, if Keras' own step trains them. All ranks find the same. Collective.

        Raises:
            MismatchError: a rank found something else.
        """
        if self._was_run or adapter.has_own(self._model, "train_step", "compute_loss"):
            return
        self._was_run = True
        if not adapter.may_couple_samples(self._model):
            return
        kind = Kind.UNKNOWN
        try:
            kind = self._compared(batch_spec)
        except (context.RefusedInTrial, NotComparable) as error:
            verdict.say_not_compared("the model's output", error)
        except Exception as error:  # a model may refuse made-up numbers in any way
            verdict.say_not_compared("the model's output", f"{type(error).__name__} on made-up samples: {error}")
        verdict.require_same("the trial of the model's output", [kind])

    def check(self, is_divided: bool, answer: Answer) -> None:
        """Refuses a model that couples samples, or warns once if the user accepts it.

        Raises:
            UnsupportedError: it couples samples.
        """
        if self._said and is_divided:
            self._verdict.refuse(self._said, answer)

    def _compared(self, batch_spec: Any) -> Kind:
        trial.check_dense(batch_spec)
        step_run.refuse_16_bits(self._model)
        batch = made_up.batch(PARTS.whole, batch_spec, made_up.numbers)
        with trial.leaving_no_trace(step_run.state_of(self._model)):
            whole, *parts = (self._outputs(part) for part in (batch, *PARTS.of(batch)))
            differences = [self._difference(*outputs) for outputs in zip(whole, *parts, strict=True)]
            if not differences or max(differences) <= trial.TOLERANCE:
                return Kind.MEAN
            if max(self._difference(one, other) for one, other in zip(whole, self._outputs(batch), strict=True)) > 1e-6:
                raise NotComparable("it draws random numbers")
        self._said.append(
            f"the output of {type(self._model).__name__} {self._model.name!r} for a sample depends on the other samples of its "
            f"batch: of {PARTS.whole} made-up samples it differs by {100 * max(differences):.2g} % from that of {PARTS.first} "
            f"and {PARTS.second} of them"
        )
        return Kind.COUPLED

    def _outputs(self, batch: Any) -> list[Any]:
        x, _, _ = adapter.keras.utils.unpack_x_y_sample_weight(tf.nest.map_structure(trial.tensor, batch))
        return [np.asarray(output, np.float64) for output in tf.nest.flatten(self._model(x, training=False))]

    def _difference(self, whole: Any, *parts: Any) -> float:
        """The difference between an output and those of the parts together, relative to its size."""
        if any(part.ndim == 0 or part.shape[1:] != whole.shape[1:] for part in parts) or whole.ndim == 0:
            raise NotComparable("it has another shape for fewer samples")
        together = np.concatenate(parts)
        if together.shape != whole.shape:
            raise NotComparable("it has not one row for each sample")
        if not np.isfinite(whole).all() or not np.isfinite(together).all():
            raise NotComparable("it is not finite on made-up samples")
        size = max(float(np.linalg.norm(whole)), float(np.linalg.norm(together)))
        return float(np.linalg.norm(whole - together)) / size if size else 0.0
