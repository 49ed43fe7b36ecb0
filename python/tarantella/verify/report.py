"""The report of `tarantella verify`: as sentences with a table, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tarantella.launcher.base.words import counted
from tarantella.verify.fingerprints import Fingerprints, Position, first_difference, same_after

COLUMNS = {"weights": "weights", "optimizer": "optimizer state", "logs": "losses and metrics"}


@dataclass(frozen=True)
class Run:
    """One of the runs that are compared."""

    ranks: int
    name: str
    seconds: float
    fingerprints: Fingerprints


class Report:
    """Compares each run with the first."""

    def __init__(self, runs: Sequence[Run], shards: int) -> None:
        self._runs = runs
        self._shards = shards
        first = runs[0].fingerprints
        self.differences = [(run, first_difference(first, run.fingerprints)) for run in runs[1:]]
        epochs = {place for run in runs for place in run.fingerprints.epochs}
        self.epochs = sorted(epochs, key=lambda place: (place.training, place.epoch or 0))

    @property
    def equal(self) -> bool:
        """Whether all bits of all runs are."""
        return all(difference is None for _, difference in self.differences)

    def text(self) -> str:
        """The table, and what differs first."""
        return "\n".join([*self._table(), *self._conclusion()]) + "\n"

    def json(self) -> str:
        """The same for programs; epochs and steps are numbered from 0."""
        return json.dumps(
            {
                "equal": self.equal,
                "shards": self._shards,
                "runs": [
                    {"name": run.name, "ranks": run.ranks, "seconds": round(run.seconds, 3),
                     "steps": len(run.fingerprints.steps), "epochs": len(run.fingerprints.epochs)}
                    for run in self._runs
                ],
                "epochs": [
                    {"training": place.training, "epoch": place.epoch,
                     **{kind: [run.name for run in self._differing_runs(place, kind)] or "equal" for kind in COLUMNS}}
                    for place in self.epochs
                ],
                "differences": [
                    {"runs": [self._runs[0].name, run.name], "text": str(found), **asdict(found.place),
                     "what": found.what, "name": found.name, "bucket": found.bucket, "values": found.values}
                    for run, found in self.differences
                    if found is not None
                ],
            },
            indent=1,
        )  # fmt: skip

    def _differing_runs(self, epoch: Position, kind: str) -> list[Run]:
        first = self._runs[0].fingerprints
        return [run for run in self._runs[1:] if not same_after(first, run.fingerprints, epoch)[kind]]

    def _table(self) -> list[str]:
        if not self.epochs:
            return []
        several = any(place.training for place in self.epochs)
        rows = [[*(["training"] if several else []), "epoch", *COLUMNS.values()]]
        for place in self.epochs:
            numbers = [*([place.training + 1] if several else []), (place.epoch or 0) + 1]
            found = [[run.name for run in self._differing_runs(place, kind)] for kind in COLUMNS]
            rows.append([*map(str, numbers), *(f"differ: {', '.join(names)}" if names else "equal" for names in found)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]

    def _conclusion(self) -> list[str]:
        made = f"{counted(len(self._runs[0].fingerprints.steps), 'step')}, {counted(len(self.epochs), 'epoch')}"
        names = [run.name for run in self._runs]
        if self.equal:
            return [f"equal to the bit: {', '.join(names[:-1])} and {names[-1]} ({made})"]
        said = [
            f"{run.name} differs first from {names[0]}: {found}" if found else f"{run.name} equals {names[0]} to the bit"
            for run, found in self.differences
        ]
        if any(found is not None and found.what == "initial weight" for _, found in self.differences):
            said.append(
                "the weights differ before anything was trained: the script must set a seed (keras.utils.set_random_seed) "
                "before it makes the model, and before each draw of its own data"
            )
        return said
