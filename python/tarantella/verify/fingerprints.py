"""Reads the file that `TNT_FINGERPRINT` names, and finds the first difference between two runs.

The lines, JSON objects by their `kind`:

* `run`: the number of ranks, shards and threads, versions.
* `restart`: the job was started again; repeated steps and epochs are written again and replace the earlier ones.
* `training`, after the first step of each `fit`: `variables` with their buckets, the names of `weights` and of the
  `optimizer`'s state, and hashes of the `initial` weights.
* `step`, after each (with `steps_per_execution=k` after every k-th): hashes of the reduced `gradients` and of the trainable
  `weights`, in the order of `variables`; null where there is none.
* `epoch`, after each: hashes of all weights and of the optimizer's state, and the `logs` as exact numbers.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UnreadableRunError(Exception):
    """The run cannot be compared; the text is the reason."""


@dataclass(frozen=True)
class Position:
    """A step or the end of an epoch, numbered from 0; without either, the beginning of the training."""

    training: int
    epoch: int | None = None
    step: int | None = None

    def __str__(self) -> str:
        training = f" of training {self.training + 1}" if self.training else ""
        if self.epoch is None and self.step is None:
            return f"before the first step{training}"
        epoch = f"epoch {self.epoch + 1}" if self.epoch is not None else ""
        if self.step is None:
            return f"after {epoch}{training}"
        return f"in step {self.step + 1}{epoch and f' of {epoch}'}{training}"


@dataclass(frozen=True)
class Difference:
    """The first between two runs."""

    place: Position
    what: str
    """"gradient", "weight", "optimizer state", "initial weight", "log"; or "course", where one run did something else."""
    name: str = ""
    bucket: int | None = None
    """The gradient's, in the first run."""
    values: tuple[str, str] | None = None
    """The values of a log in both runs."""

    def __str__(self) -> str:
        if self.what == "course":
            return f"{self.name} {self.place}"
        where = f" (bucket {self.bucket})" if self.bucket is not None else ""
        values = f": {' and '.join(self.values)}" if self.values else ""
        return f"the {self.what} {self.name}{where} {self.place}{values}"


@dataclass
class Fingerprints:
    """One run's."""

    trainings: dict[int, dict[str, Any]] = field(default_factory=dict)
    steps: dict[Position, dict[str, Any]] = field(default_factory=dict)
    epochs: dict[Position, dict[str, Any]] = field(default_factory=dict)

    def events(self) -> dict[Position, dict[str, Any]]:
        """The lines of each place, in the order of a run without restarts."""
        whole = {**self.steps, **self.epochs}
        return {place: whole[place] for place in sorted(whole, key=_order)}


def read(path: Path) -> Fingerprints:
    """Raises UnreadableRunError."""
    found = Fingerprints()
    for line in _lines(path):
        kind, training = line["kind"], line.get("training", 0)
        if kind == "training":
            found.trainings.setdefault(training, line)  # after a restart its initial weights are those of a checkpoint
        elif kind == "step":
            found.steps[Position(training, line["epoch"], line["step"])] = line
        elif kind == "epoch":
            found.epochs[Position(training, line["epoch"])] = line
    if not found.steps:
        raise UnreadableRunError("no tnt.Model has made a step in fit or train_on_batch: is the script's model a tnt.Model?")
    return found


def first_difference(one: Fingerprints, other: Fingerprints) -> Difference | None:
    """None if all bits are equal."""
    for number, training in one.trainings.items():
        found = _beginning_difference(number, training, other.trainings.get(number))
        if found is not None:
            return found
    others = other.events()
    for place, event in one.events().items():
        if place not in others:
            return Difference(place, "course", "only the first of them was there")
        found = _event_difference(place, event, others[place], one.trainings[place.training])
        if found is not None:
            return found
    more = next((place for place in others if place not in one.events()), None)
    return None if more is None else Difference(more, "course", "only the second of them was there")


def same_after(one: Fingerprints, other: Fingerprints, epoch: Position) -> dict[str, bool]:
    """Which parts of an epoch's end are equal."""
    mine, its = one.epochs.get(epoch), other.epochs.get(epoch)
    kinds = ("weights", "optimizer", "logs")
    return {kind: mine is not None and its is not None and mine[kind] == its[kind] for kind in kinds}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return
        raise UnreadableRunError(f"cannot read {str(path)!r}: {error.strerror}") from None
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:  # cut off by what killed the job, before a restart
            continue
        if isinstance(found, dict) and "kind" in found:
            yield found


def _order(place: Position) -> tuple[float, ...]:
    """The end of an epoch comes after its steps; single steps, which have no epoch, after those of `fit`."""
    end = float("inf")
    return place.training, end if place.epoch is None else place.epoch, end if place.step is None else place.step


def _beginning_difference(number: int, mine: dict[str, Any], its: dict[str, Any] | None) -> Difference | None:
    place = Position(number)
    if its is None:
        return Difference(place, "course", "only the first of them was there")
    if [v["name"] for v in mine["variables"]] != [v["name"] for v in its["variables"]] or mine["weights"] != its["weights"]:
        return Difference(place, "course", "the models have other variables")
    index = _first(mine["initial"], its["initial"])
    return None if index is None else Difference(place, "initial weight", mine["weights"][index])


def _event_difference(
    place: Position, mine: dict[str, Any], its: dict[str, Any], training: dict[str, Any]
) -> Difference | None:
    variables = training["variables"]
    if place.step is not None:
        in_buckets = sorted(range(len(variables)), key=lambda i: (variables[i]["bucket"] or 0, i))
        if mine["gradients"] is not None and its["gradients"] is not None:
            for i in in_buckets:
                if mine["gradients"][i] != its["gradients"][i]:
                    return Difference(place, "gradient", variables[i]["name"], variables[i]["bucket"])
        index = _first(mine["weights"], its["weights"])
        return None if index is None else Difference(place, "weight", variables[index]["name"])
    for kind, what in (("weights", "weight"), ("optimizer", "optimizer state")):
        index = _first(mine[kind], its[kind])
        if index is not None:
            names = training[kind]
            return Difference(place, what, names[index] if index < len(names) else f"number {index + 1}")
    for name in [*mine["logs"], *its["logs"]]:
        values = tuple(_shown(event["logs"].get(name)) for event in (mine, its))
        if mine["logs"].get(name) != its["logs"].get(name):
            return Difference(place, "log", name, values=(values[0], values[1]))
    return None


def _first(mine: Sequence[str], its: Sequence[str]) -> int | None:
    """Where two lists differ first."""
    return next((i for i in range(max(len(mine), len(its))) if mine[i : i + 1] != its[i : i + 1]), None)


def _shown(value: Any) -> str:
    """An exact number with as many digits as tell it from all others."""
    if value is None:
        return "nothing"
    return repr(float.fromhex(value)) if isinstance(value, str) else repr([float.fromhex(one) for one in value])
