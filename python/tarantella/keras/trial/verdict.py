"""What all ranks found together, and the messages about it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tarantella import runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.errors import UnsupportedError
from tarantella.keras.trial.comparison import Kind, common_kind

_EACH_RANK = "with fit(..., tnt_distribute_dataset=False) each rank has batches of its own"
_WAYS_OUT_OF_LOSS = (
    "Ranks cannot compute such a loss from their own samples. Without reproducible, and with dense tensors, each rank computes "
    f"it from the outputs of all ranks, as tnt.all_gather inside the loss does; {_EACH_RANK}; "
    "tnt.Model(model, accept_approximate=True) trains the mean of the ranks' losses"
)
_WAYS_OUT_OF_STEP = (
    "Ranks cannot compute it from their own samples. Let the loss be a mean or a sum over samples, give it to compile, or "
    f"bring the samples of all ranks together by tnt.all_gather inside the step (not with reproducible); {_EACH_RANK}; "
    "tnt.Model(model, accept_approximate=True) trains with the mean of the ranks' gradients"
)
_WAYS_OUT_OF_OUTPUT = (
    "Ranks cannot compute it from their own samples. Let the layer use no other sample: pad to a length that is the same for "
    "all batches, or bring what all samples have in common together by tnt.all_reduce or tnt.all_gather inside the layer; "
    f"{_EACH_RANK}; tnt.Model(model, accept_approximate=True) computes it from each rank's own samples"
)
_TOGETHER = "Bring those of all ranks together by tnt.all_reduce or tnt.all_gather in the layer or step that changes it"
_WAYS_OUT_OF_KEPT = (
    f"Each rank would change it by its own samples. {_TOGETHER}; {_EACH_RANK}; "
    "tnt.Model(model, accept_approximate=True) takes the mean over ranks at the end of each epoch"
)


COUPLED = {
    "loss": (_WAYS_OUT_OF_LOSS, "the mean of the ranks' losses is trained"),
    "added": (_WAYS_OUT_OF_STEP, "the mean of the ranks' losses is trained"),
    "step": (_WAYS_OUT_OF_STEP, "the mean of the ranks' gradients is used"),
    "output": (_WAYS_OUT_OF_OUTPUT, "it is computed from each rank's own samples"),
    "kept": (_WAYS_OUT_OF_KEPT, "the mean over ranks is taken at the end of each epoch"),
}
"""What may couple samples: the user's alternatives, and the behaviour if the user accepts it."""
NO_ROWS = -2
"""In `Findings.bytes_of_losses`: the loss is given numbers that the model makes of all samples."""
KEPT_IN_INFERENCE = f"Each rank changes it by its own samples. {_TOGETHER}"
UNPROVEN = (
    "the metric {!r}: not all of its states change on the first batch. Ranks add them up, which is right if update_state adds "
    "to sums and counts alone"
)


class Answer(NamedTuple):
    """The user's choice about samples that are coupled: the arguments of `tnt.Model`."""

    across_ranks: bool = False
    """A loss is computed from the samples of all ranks, and nothing is said of that."""
    accept_approximate: bool = False
    """What the ranks make of their own samples is good enough."""


@dataclass
class Findings:
    """What was found, on one rank or on all. Objects are known by their places in lists of the model's."""

    losses: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Of losses given to `compile`: the kind, and what was compared, as words."""
    bytes_of_losses: dict[int, int] = field(default_factory=dict)
    """How many bytes a sample has of what they are given; negative if it cannot be gathered, `NO_ROWS` if not of samples."""
    kept: dict[tuple[str, int], str] = field(default_factory=dict)
    """Of what a step keeps, by the step, and by the place in `moving_statistics.kept`: the kind."""
    added: dict[tuple[str, int, int], tuple[str, str]] = field(default_factory=dict)
    """Of losses that layers add, by step, layer and number of the call."""
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of steps with parts of the user's own: an `own_step.Finding`, with metrics in the place of their ids."""
    metrics: dict[int, tuple[str, bool, str, bool, bool]] = field(default_factory=dict)
    """Of the user's metrics: a `metrics.Finding`."""
    coupled: dict[str, str] = field(default_factory=dict)
    """Sentences about outputs that couple samples, by step."""
    not_tried: dict[str, str] = field(default_factory=dict)
    """Why something could not be tried, by what it is."""
    gathers: dict[str, str] = field(default_factory=dict)
    """The same where it brings samples of ranks together itself."""
    step_of_loss: dict[int, str] = field(default_factory=dict)
    """A step in which each of these losses is computed."""
    tried: dict[str, bool] = field(default_factory=dict)
    """The steps that were tried."""
    loss_draws: int = 0
    """How often losses drew random numbers."""

    @property
    def leave_doubts(self) -> bool:
        """Whether other parts of the samples may tell more: a part in which nothing counts makes a mean look like a sum."""
        kinds = [kind for found in (self.losses, self.added) for kind, _ in found.values()]
        kinds += [finding["gradients"] for finding in self.steps.values()]
        return bool(self.not_tried) or not {Kind.UNKNOWN.name, Kind.SUM.name}.isdisjoint(kinds)

    def forget_coupling(self, what: str, step: str, place: int) -> None:
        """Ranks bring together what couples samples in a ``"loss"``, in what is ``"added"``, or in a model's ``"own"`` loss."""
        mean = Kind.MEAN.name
        if what == "loss":
            self.losses[place] = mean, ""
        elif what == "added":
            self.added.update((key, (mean, "")) for key in self.added if key[0] == step)
        else:
            self.steps[step] = {**self.steps[step], "gradients": mean, "names": [], "updates": {}, "logs": {}}
            no_rows = [p for p, size in self.bytes_of_losses.items() if size == NO_ROWS and self.step_of_loss[p] == step]
            self.losses.update((place, (mean, "")) for place in no_rows)


def agreed(own: Findings) -> Findings:
    """What the ranks found together. Collective."""
    return together([Findings(**found) for found in all_gather_object(asdict(own))])


def both_trials(first: Findings, second: Findings) -> Findings:
    """What was found of two pairs of parts of the same samples. What one of the trials could not tell does not count."""
    result = together([first, second])
    result.not_tried = {what: why for what, why in first.not_tried.items() if what in second.not_tried}
    return result


def together(rank_findings: Sequence[Findings]) -> Findings:
    """The findings of several ranks as one."""
    result = Findings(loss_draws=sum(one.loss_draws for one in rank_findings))
    for name in ("losses", "added"):
        found: dict[Any, list[tuple[str, str]]] = {}
        for one in rank_findings:
            for key, value in getattr(one, name).items():
                found.setdefault(key, []).append(value)
        getattr(result, name).update((key, _common_number(values)) for key, values in found.items())
    for one in rank_findings:
        for place, size in one.bytes_of_losses.items():
            known = result.bytes_of_losses.get(place, size)
            result.bytes_of_losses[place] = min(size, known) if min(size, known) < 0 else max(size, known)
        for key, kind in one.kept.items():
            result.kept[key] = common_kind((Kind[kind], Kind[result.kept.get(key, kind)])).name
        for place, metric in one.metrics.items():
            result.metrics[place] = max(result.metrics.get(place, metric), metric)
        for step, finding in one.steps.items():
            result.steps[step] = _common_step(result.steps[step], finding) if step in result.steps else finding
        for name in ("coupled", "not_tried", "gathers", "step_of_loss", "tried"):
            getattr(result, name).update({**getattr(one, name), **getattr(result, name)})
    return result


def _common_number(values: Sequence[tuple[str, str]]) -> tuple[str, str]:
    kind = common_kind(Kind[name] for name, _ in values)
    return kind.name, next((said for name, said in values if name == kind.name), values[0][1])


def _common_step(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    def kinds(name: str) -> dict[Any, str]:
        keys = [*first[name], *(key for key in second[name] if key not in first[name])]
        return {key: common_kind(Kind[one[name][key]] for one in (first, second) if key in one[name]).name for key in keys}

    worse = max((first, second), key=lambda one: (one["gradients"] == Kind.COUPLED.name, one["percent"]))
    gradients = common_kind([Kind[first["gradients"]], Kind[second["gradients"]]]).name
    flags = {name: first[name] or second[name] for name in ("in_tapes", "noise_later")}
    names = list(dict.fromkeys([*first["names"], *second["names"]]))
    return {**worse, **flags, "gradients": gradients, "names": names, "updates": kinds("updates"), "logs": kinds("logs")}


def refuse(subject: str, said: Iterable[str], answer: Answer, warned: set[str]) -> None:
    """Refuses coupled samples, or warns once if the user accepts them.

    Args:
        subject: one of `COUPLED`.
        said: of each loss, or of the step, what was compared.
        warned: the subjects of the warnings so far.

    Raises:
        UnsupportedError: the user does not accept it.
    """
    text, (ways_out, instead) = "; ".join(said), COUPLED[subject]
    if not answer.accept_approximate:
        compile_hint = " across_ranks=True is for losses given to compile, and not for this." * answer.across_ranks
        raise UnsupportedError(f"{text}.{compile_hint} {ways_out}")
    if subject not in warned:
        warned.add(subject)
        runtime.logger.warning("%s. accept_approximate=True: %s instead", text, instead)


def warn_not_tried(what: str, reason: str) -> None:
    """Warns that there was no comparison, and says what that means."""
    runtime.logger.warning(
        "%s could not be compared on samples of the first batch and on parts of them: %s. On several ranks it is right if each "
        "sample's part of it depends on that sample alone, and a loss is their mean. If so, tnt.Model(model, "
        "samples='independent') says that, and nothing is tried",
        what,
        reason,
    )
