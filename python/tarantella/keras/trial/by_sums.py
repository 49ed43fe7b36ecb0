"""Whether what couples samples is made of sums over them, which ranks can add up: `tarantella.keras.step.batch_sums`.

A loss, what layers add, or a model's own `compute_loss` is computed of the samples and of their parts again, eagerly, with the
sums of the whole in the parts. All ranks try what any of them found to be coupled, and agree on how each sum is made.
"""

from collections.abc import Sequence
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.step.batch_sums import BatchSums
from tarantella.keras.trial import losses
from tarantella.keras.trial.comparison import Kind
from tarantella.keras.trial.own_step import OwnStep
from tarantella.keras.trial.parts import Parts
from tarantella.keras.trial.run import Runs, Tried
from tarantella.keras.trial.state import losses_of
from tarantella.keras.trial.verdict import NO_ROWS, Findings

Subject = tuple[str, str, int]
"""``"loss"``, ``"added"`` or ``"own"``, the step, and the place of a loss."""


class BySums:
    """The trial of some subjects.

    Steps look into the model's `LossKinds` for what is made of sums.
    """

    def __init__(self, tried: Tried) -> None:
        self._tried, self._model, self._kinds = tried, tried.model, tried.kinds
        self._sums: dict[Subject, BatchSums] = {}

    def subjects(self, found: Findings) -> list[Subject]:
        """What ranks found to be coupled and may be made of sums, in the same order on all ranks."""
        if not self._kinds.may_use_sums:
            return []
        coupled, steps = Kind.COUPLED.name, list(dict.fromkeys([*found.tried, *found.steps]))
        places = [place for place, (kind, _) in sorted(found.losses.items()) if kind == coupled]
        losses = [("loss", found.step_of_loss[p], p) for p in places if found.bytes_of_losses[p] != NO_ROWS]
        made_in_step = {found.step_of_loss[p] for p in places} - {step for _, step, _ in losses}
        added = {step for (step, _, _), (kind, _) in found.added.items() if kind == coupled}
        if adapter.is_jit_compiled(self._model):
            added = set()
        own = [step for step in steps if step in found.steps and adapter.has_own(self._model, step, "compute_loss")]
        couples = made_in_step.intersection(own) or any(found.steps[step]["gradients"] == coupled for step in own)
        if not couples or self._is_compiled_step(own):
            own = []
        return [*losses, *(("added", step, 0) for step in sorted(added)), *(("own", step, 0) for step in sorted(own))]

    def _is_compiled_step(self, steps: Sequence[str]) -> bool:
        """Whether XLA compiles a step in whose own sums ranks would meet."""
        return adapter.is_jit_compiled(self._model) and any(adapter.has_own(self._model, step) for step in steps)

    def try_out(self, subject: Subject, parts: Parts) -> list[tuple[str, tuple[str, ...]]] | None:
        """How each of its sums may be made of those of the parts: the operation and names of places; None if it is not."""
        what, step, place = subject
        self._sums[subject] = sums = BatchSums(self.described(subject), self._method(subject))
        registry, key = self._registry(subject)
        registry[key] = sums
        try:
            if what == "own":
                trial = OwnStep(self._tried, step, parts, False)
                finding = trial.finding()
                found = [*finding.updates.values(), *finding.logs.values(), finding.gradients]
                if trial.records is not None and adapter.has_own(self._model, step):
                    loss_kinds = losses.compiled_kinds(losses_of(self._model), parts, *trial.records, trial.again)
                    found += [kind for kind, _ in loss_kinds.values()]
            else:
                whole, records = Runs(self._tried, step).records(parts)
                if what == "loss":
                    loss_kind = losses.compiled_kinds([losses_of(self._model)[place]], parts, whole, records, lambda: whole)
                    found = [kind for kind, _ in loss_kind.values()]
                else:
                    found = [kind for kind, _ in losses.added_kinds(parts, whole, records).values()]
        except Exception:  # whatever it refuses, it stays coupled, and that is said
            return None
        finally:
            del registry[key]
        return None if Kind.COUPLED in found or not found else sums.possible()

    def settle(self, subject: Subject, places: list[tuple[str, tuple[str, ...]]]) -> None:
        """The subject is computed with the sums of all ranks from now on."""
        sums = self._sums[subject]
        sums.settle([(operation, names[0]) for operation, names in places])
        registry, key = self._registry(subject)
        registry[key] = sums

    def described(self, subject: Subject) -> str:
        """The subject of a sentence."""
        if subject[0] == "loss":
            return losses.described(self._model, losses_of(self._model)[subject[2]])
        return "what layers add by add_loss" if subject[0] == "added" else self._method(subject)

    def _method(self, subject: Subject) -> str:
        """The method of the model in which it takes its sums; empty for a loss."""
        step_method = subject[1] if adapter.has_own(self._model, subject[1]) else "compute_loss"
        return {"loss": "", "added": "call"}.get(subject[0], step_method)

    def _registry(self, subject: Subject) -> tuple[dict[Any, BatchSums], Any]:
        what, step, place = subject
        if what == "loss":
            return self._kinds.by_sums, id(losses_of(self._model)[place])
        return (self._kinds.added_by_sums, step == "train_step") if what == "added" else (self._kinds.own_by_sums, step)


def common_places(rank_places: list[Any]) -> list[tuple[str, tuple[str, ...]]] | None:
    """How each sum may be made on all ranks; None if it may not."""
    if any(one is None for one in rank_places) or len({tuple(name for name, _ in one) for one in rank_places}) != 1:
        return None
    found = []
    for same in zip(*rank_places, strict=True):
        names = tuple(name for name in same[0][1] if all(name in places for _, places in same))
        if not names:
            return None
        found.append((same[0][0], names))
    return found
