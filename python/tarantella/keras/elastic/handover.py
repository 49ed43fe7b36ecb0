"""What a newcomer is told before it gets the state of the model: first whether it trains the same, then where `fit` is."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tarantella import generations
from tarantella.keras import adapter
from tarantella.keras.checkpoint import callback_states, state
from tarantella.keras.elastic.last_batch import LastBatch
from tarantella.keras.step import configuration
from tarantella.keras.step.losses import LossKinds


class Part(Protocol):
    """A part of a `fit` that counts what was done."""

    def progress(self) -> Any:
        """What a newcomer needs to know of it."""

    def join(self, progress: Any) -> None:
        """This rank was a newcomer until now. progress: of another rank."""


class Handover:
    """That of one `fit`, on a rank that tells and on one that is told.

    Args:
        model: the Keras model.
        kinds: what trials have found of its losses.
        callbacks: the user's.
        batches: by the names of Keras' functions that get them.
        arguments: of `fit`, which are numbers.
        parts: by their names.
    """

    def __init__(
        self,
        model: Any,
        kinds: LossKinds,
        callbacks: Sequence[Any],
        batches: Mapping[str, LastBatch],
        arguments: Mapping[str, int | None],
        parts: Mapping[str, Part],
    ) -> None:
        self._model, self._kinds, self._callbacks = model, kinds, callbacks
        self._batches, self._arguments, self._parts = batches, arguments, parts

    def record(self) -> dict[str, Any]:
        """All of it, as `collectives.broadcast_object` takes it. Not collective."""
        history, has_common_seed = self._model.history, bool(adapter.common_seed_variables())
        return {
            "arguments": self._numbers(),
            "kinds": self._kinds.summary(),
            "configuration": configuration.entries(self._model),
            "common seed": has_common_seed,
            "variables": _described(self._model, has_common_seed),
            "batch": self._batches["train_function"].fingerprint(),
            "validated on": self._validated_on(),
            "epochs": list(history.epoch),
            "history": {name: list(values) for name, values in history.history.items()},
            "callbacks": callback_states.collect(self._callbacks),
            "parts": {name: part.progress() for name, part in self._parts.items()},
        }

    def take(self, record: dict[str, Any]) -> None:
        """On a newcomer, when it has the batch at hand that the others have. Not collective.

        record: another rank's.

        Raises:
            UnsupportedError: this rank trains something else.
        """
        reason = self._difference(record)
        if reason is not None:
            raise generations.refusal(reason)
        history = self._model.history
        history.epoch, history.history = record["epochs"], record["history"]
        callback_states.restore(self._callbacks, record["callbacks"])
        for name, part in self._parts.items():
            part.join(record["parts"][name])

    def _difference(self, record: dict[str, Any]) -> str | None:
        numbers = self._numbers()
        for name, value in record["arguments"].items():
            if numbers.get(name) != value:
                return f"fit has {name}={numbers.get(name)} here, and {value} on the others"
        variables, theirs = _described(self._model, record["common seed"]), record["variables"]
        if len(variables) != len(theirs):
            return f"its model has {len(variables)} variables, and theirs {len(theirs)}"
        for own, other in zip(variables, theirs, strict=True):
            if own != other:
                return f"its model has a variable of shape {own[0]} and type {own[1]}, theirs of shape {other[0]}, {other[1]}"
        difference = configuration.difference(configuration.entries(self._model), record["configuration"])
        if difference is not None:
            return f"{difference[0]} is {difference[1]} here, and {difference[2]} on the others"
        if self._kinds.summary() != record["kinds"]:
            return "a trial of its batches has found other kinds of losses and metrics than the others have"
        if self._batches["train_function"].fingerprint() != record["batch"]:
            return (
                "its data is not the others', or in another order: give a seed to whatever is random in the dataset, and make "
                "the dataset anew for each fit"
            )
        if None not in (self._validated_on(), record["validated on"]) and self._validated_on() != record["validated on"]:
            return (
                "its last validation would have had other batches than the others': give a seed to whatever is random in the "
                "validation data, and make them anew for each fit"
            )
        return None

    def _validated_on(self) -> int | None:
        """The fingerprint of the first batch of the last validation."""
        return None if "test_function" not in self._batches else self._batches["test_function"].noted

    def _numbers(self) -> dict[str, int | None]:
        return {**self._arguments, **{f"batches of {name}": one.cardinality for name, one in self._batches.items()}}


def _described(model: Any, common_seed: bool) -> list[list[Any]]:
    """The shape and type of each variable that a newcomer gets. common_seed: as for `state.groups_of`."""
    variables = [v for group in state.groups_of(model, common_seed).values() for v in group]
    return [[list(shape), dtype] for _, shape, dtype in map(state.described, variables)]
