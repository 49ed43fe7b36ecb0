"""Whether the output of a model that a loop of the user's own calls depends, for a sample, on the other samples of its batch.

The loop itself cannot be run again, and its loss is its own business. A call of the model can: on a few of the samples that the
loop has given it, and on two parts of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.step.patch import patched
from tarantella.keras.trial import outputs
from tarantella.keras.trial.comparison import Kind, NotComparable
from tarantella.keras.trial.parts import parts_of
from tarantella.keras.trial.record import Record
from tarantella.keras.trial.run import Runs, Tried, neutral
from tarantella.keras.trial.state import leaving_no_trace


class _Calls(Runs):
    """Runs of a call, whose lengths are those of the samples at hand: ranks do not agree on them in a loop."""

    def __init__(self, tried: Tried, call: Callable[[Any], Any], spec: Any) -> None:
        super().__init__(tried, "call", spec)
        self._call = call

    def _computed(self, batch: Any, weight: Any, whole_divisors: Any, whole: Record | None) -> Record:
        with patched(lambda: neutral(self._tried.model)):
            return Record(outputs=[self._call(batch)])


def coupling(model: Any, call: Callable[[Any], Any], tensors: Sequence[Any], spec: Sequence[Any] | None) -> str:
    """Says in a sentence that the output for a sample depends on others, and from which layer on; empty if it does not.

    Args:
        model: the model, or a layer. Its state and all random generators are as before, afterwards.
        call: calls it, as the loop has done, on such tensors.
        tensors: those that it was given, with a row for each sample.
        spec: of the tensors, if the loop calls it in a graph: what is not known there of their shapes may matter.

    Raises:
        NotComparable: the rows are no samples, or there are fewer than two. Any other error is that of the call.
    """
    parts = parts_of(list(tensors), shortest=1)  # of a few samples, most may be as long as the longest
    if len({int(tensor.shape[0]) for tensor in parts.whole}) != 1:
        raise NotComparable("its tensors have not the same number of rows")
    layers = adapter.layers_of(model)
    with leaving_no_trace([*adapter.variables(model), *adapter.variables_in(layers)], layers) as restore:

        def new_runs() -> _Calls:
            return _Calls(Tried(model, LossKinds(), restore), call, None if spec is None else list(spec))

        runs = new_runs()
        whole, part_records = runs.records(parts)
        kind, apart = outputs.kind_of(parts, whole, part_records, lambda: runs.whole(parts.whole))
        return outputs.sentence(model, parts, apart, "a training loop", new_runs) if kind is Kind.COUPLED else ""
