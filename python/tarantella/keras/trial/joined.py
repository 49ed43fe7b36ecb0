"""How losses are made of rows, of a batch that cannot be cut: its samples are joined into one, as graphs are.

The step is run on the whole batch. What its losses are given, labels and predictions, has rows that can be cut.
"""

from typing import Any

from tarantella.keras import adapter
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.trial import losses
from tarantella.keras.trial.comparison import NotComparable
from tarantella.keras.trial.declared import is_declared
from tarantella.keras.trial.parts import Parts, parts_of
from tarantella.keras.trial.record import Record, recorded_loss
from tarantella.keras.trial.run import Runs, Tried
from tarantella.keras.trial.state import losses_of
from tarantella.keras.trial.trial_step import TrialStep
from tarantella.keras.trial.verdict import Findings

_TAKEN = "it is taken as a mean over the samples that tnt_batch_size states"


def try_losses(tried: Tried, step: str, batch: Any, found: Findings) -> None:
    """Notes the kinds of the losses given to `compile`, and what is not tried."""
    model, kinds = tried.model, tried.kinds
    own = next((name for name in (step, "compute_loss") if adapter.has_own(model, name)), None)
    if own is not None:
        if not is_declared(getattr(model, own)):
            found.not_tried[own] = f"batches are whole, and {_TAKEN}"
        return
    whole = Runs(tried, step).whole(batch)
    if whole.added:
        found.not_tried["what layers add by add_loss"] = f"batches are whole, and {_TAKEN}"
    if whole.logs:
        found.not_tried["what compute_metrics adds to the logs"] = f"batches are whole, and {_TAKEN}"
    all_losses = losses_of(model)
    for place, loss in enumerate(all_losses):
        given = [one for called, one in whole.loss_calls if called is loss]
        if given and not is_declared(loss):
            try:
                kind, said = _kind(loss, parts_of(given[0]), kinds)
            except NotComparable as error:
                found.not_tried[losses.described(model, loss)] = str(error)
            else:
                found.losses[place], found.step_of_loss[place] = (kind.name, said), step


def _kind(loss: Any, parts: Parts, kinds: LossKinds) -> Any:
    step = TrialStep(kinds)

    def run(given: Any, weight: float, whole_divisors: Any = None) -> Record:
        record = Record()
        with step.computing(weight, whole_divisors):
            recorded_loss(record, loss, step)(*given)
        record.divisors = step.divisors
        return record

    whole = run(parts.whole, 1.0)
    part_records = [run(part, weight, whole.divisors) for part, weight in zip(parts.parts, parts.weights, strict=True)]
    return losses.compiled_kinds([loss], parts, whole, part_records, lambda: run(parts.whole, 1.0))[0]
