"""All reducers of one model: made when they are first needed, on all ranks in the same order, and closed with the model.

Gradients have more than one plan in a training's life. A provisional plan, made before the first step, finds ranks whose models
differ. The first traced step replaces it if backward makes the gradients in another order. Autotuning adds trial plans with
other fusion thresholds and drops all but the best.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tarantella import runtime, settings
from tarantella.keras import adapter
from tarantella.keras.reduction import gradient_order, gradients, sparse, statistics
from tarantella.keras.reduction.bucket_hook import PackedBucket
from tarantella.keras.reduction.reducer import WIRE_DEFAULT, Reducer, Spec
from tarantella.keras.reduction.sparse import SparseReducer

_registries: "weakref.WeakSet[ReducerRegistry]" = weakref.WeakSet()


class ReducerKey(NamedTuple):
    name: str
    variables: tuple[int, ...]  # the ids of the objects whose tensors are reduced
    fusion_threshold: float | None = None  # of gradients; None: the default of the environment
    owners: tuple[int, ...] = ()  # of gradients: the rank that needs the sum of each; empty: all ranks do


def _key(name: str, variables: Sequence[Any], *gradient_options: Any) -> ReducerKey:
    return ReducerKey(name, tuple(id(variable) for variable in variables), *gradient_options)


class ReducerRegistry:
    """The reducers of one model.

    Args:
        context: text that all ranks must have in common, such as the optimizer's class.
        wire_dtype: the type in which gradients are sent, as `Reducer` takes it.
        bucket_hook: sees each bucket of gradients before it is sent.
        fusion_threshold: bytes at which a bucket of gradients is closed; None: the environment's, else chosen.
        tree: all sums are taken in the tree that `Reducer` describes, those of 16-bit tensors in float32.
    """

    def __init__(
        self,
        context: str = "",
        wire_dtype: str | int = WIRE_DEFAULT,
        bucket_hook: Callable[[PackedBucket], object] | None = None,
        fusion_threshold: float | None = None,
        tree: bool = False,
    ) -> None:
        self.fusion_threshold = fusion_threshold  # of the gradients' plan that the next traced or eager step uses
        self.has_bucket_hook = bucket_hook is not None
        self.tree = tree
        self._context = context
        self._wire_dtype = wire_dtype
        self._bucket_hook = bucket_hook
        self._reducers: dict[ReducerKey, tuple[Reducer | SparseReducer, list[Any]]] = {}
        self._provisional: ReducerKey | None = None
        self._stats_of_dropped = dict(statistics.NO_STATS)
        _registries.add(self)

    def __iter__(self) -> Iterator[Reducer | SparseReducer]:
        return iter([reducer for reducer, _ in self._reducers.values()])

    def reducer(self, name: str, specs: Sequence[Spec], variables: Sequence[Any] = ()) -> Reducer:
        """The reducer of this name for these variables. Collective when it is asked for the first time."""
        return self._reducer(_key(name, variables), specs, variables)

    def _reducer(self, key: ReducerKey, specs: Sequence[Spec], variables: Sequence[Any], **options: Any) -> Reducer:
        if key not in self._reducers:
            if self.tree:
                specs = [Spec(s.name, s.count, sum_type(s.dtype)) for s in specs]
            self._keep(key, Reducer(key.name, specs, self._context, tree=self.tree, **options), variables)
        return cast("Reducer", self._reducers[key][0])

    def _keep(self, key: ReducerKey, reducer: Reducer | SparseReducer, variables: Sequence[Any]) -> None:
        self._reducers[key] = (reducer, list(variables))  # kept alive, so that no other object gets their ids

    def _before_making(self, variables: Sequence[Any]) -> None:
        """Called before a reducer of these variables' gradients is made, which is collective."""

    def _before_step(self, reducer: Reducer | SparseReducer, variables: Sequence[Any], grads: Sequence[Any]) -> None:
        """Called before each step of a reducer of gradients is added to a graph, or made eagerly."""

    def label(self, variable: Any) -> str:
        """The variable's name for the other ranks, which compare it."""
        return adapter.path(variable)

    def hook_error(self) -> Exception | None:
        """The exception that the user's bucket hook raised on this rank, if it did."""
        errors = (r.hook.error for r in self if isinstance(r, Reducer) and r.hook is not None)
        return next((error for error in errors if error is not None), None)

    def close(self) -> None:
        """Stops the reducers."""
        for reducer in self:
            if isinstance(reducer, Reducer):
                reducer.close()
        self._reducers.clear()
        self._provisional = None

    # ----------------------------------------------------------------------------------------------- gradients

    def sum_gradients(
        self,
        grads: Sequence[Any],
        variables: Sequence[Any],
        weight: Any,
        *,
        owners: Sequence[int] = (),
        keeps_rows: bool = False,
    ) -> list[Any]:
        """The sum over ranks of ``weight * gradient``: dense ones in buckets, sparse ones by rows if that moves fewer bytes.

        A variable without a gradient keeps none.

        Args:
            owners: for each variable, the rank that needs the sum; the results of dense ones on the other ranks are undefined.
            keeps_rows: the rows of sparse gradients of all ranks are not added up, but follow one another.
        """
        pairs = list(zip(grads, variables, strict=True))
        by_rows = [i for i, pair in enumerate(pairs) if sparse.is_reduced_by_rows(*pair, keeps_rows)]
        whole = [i for i in range(len(variables)) if i not in by_rows]
        result: list[Any] = [None] * len(variables)
        if whole:
            own, whole_variables = [grads[i] for i in whole], [variables[i] for i in whole]
            reducer = self.gradient_reducer(whole_variables, own, [owners[i] for i in whole] if owners else ())
            self._before_step(reducer, whole_variables, own)
            reduced = reducer.reduce([gradients.dense(grads[i], variables[i]) for i in whole], weight)
            for i, tensor in zip(whole, reduced, strict=True):
                result[i] = None if grads[i] is None else tensor
        if by_rows:
            tables = [variables[i] for i in by_rows]
            by_row_reducer = self.sparse_reducer(tables, keeps_rows)
            self._before_step(by_row_reducer, tables, [grads[i] for i in by_rows])
            for place, i in enumerate(by_rows):
                result[i] = by_row_reducer.reduce(place, grads[i], weight)
        return result

    def prepare(self, variables: Sequence[Any], owners: Sequence[int] = ()) -> None:
        """Makes a provisional reducer of gradients if there is none: ranks whose models differ are found here. Collective."""
        if not any(reducer.name == "gradients" for reducer in self):
            self._provisional = _key("gradients", variables, self.fusion_threshold, tuple(owners))
            self._gradient_reducer(self._provisional, variables)

    def gradient_reducer(self, variables: Sequence[Any], grads: Sequence[Any], owners: Sequence[int] = ()) -> Reducer:
        """The reducer of these variables' gradients. Collective when it is asked for the first time.

        owners: for each variable, the rank that needs the sum; empty: all ranks do.

        The provisional plan expects dense gradients, from the last variable to the first. If the first trace shows anything
        else, the final plan replaces it before anything was reduced.
        """
        key = _key("gradients", variables, self.fusion_threshold, tuple(owners))
        if self._provisional is None and key in self._reducers:
            return cast("Reducer", self._reducers[key][0])
        self._before_making(variables)
        order = gradient_order.agreed_order(grads)
        if key == self._provisional and order == gradient_order.reverse_order(len(order)):
            self._provisional = None
        self._drop_provisional()
        return self._gradient_reducer(key, variables, order)

    def sparse_reducer(self, variables: Sequence[Any], keeps_rows: bool = False) -> SparseReducer:
        """The reducer of these variables' gradients, which are sparse. Collective when it is asked for the first time."""
        self._drop_provisional()
        key = _key("rows of sparse gradients" if keeps_rows else "sparse gradients", variables)
        if key not in self._reducers:
            self._before_making(variables)
            self._keep(key, SparseReducer(variables, self._context, self.label, keeps_rows), variables)
        return cast("SparseReducer", self._reducers[key][0])

    def _drop_provisional(self) -> None:
        if self._provisional is not None:
            runtime.logger.info("the plan changes: the traced step has gradients in another order, by rows, or for other ranks")
            cast("Reducer", self._reducers.pop(self._provisional)[0]).close()
            self._provisional = None

    def _gradient_reducer(self, key: ReducerKey, variables: Sequence[Any], order: Sequence[int] | None = None) -> Reducer:
        return self._reducer(
            key,
            gradients.specs(variables, self.label),
            variables,
            wire_dtype=self._wire_dtype,
            bucket_hook=self._bucket_hook,
            fusion_threshold=key.fusion_threshold,
            gradient_order=order,
            gradients=True,
            owners=key.owners,
        )

    def wire_dtype(self) -> str:
        """The type in which gradients are sent; ``"none"``: in their own."""
        return self._wire_dtype if isinstance(self._wire_dtype, str) else settings.gradient_dtype()

    # --------------------------------------------------------------------------------------------------- plans

    def add_plan(self, threshold: float) -> None:
        """Makes reducers like those of the gradients, with another threshold. Collective."""
        for key, reducer, variables in self._gradient_reducers(None):
            self._gradient_reducer(key._replace(fusion_threshold=threshold), variables, reducer.gradient_order)

    def drop_plan(self, threshold: float | None) -> None:
        """Closes the reducers of a threshold; their statistics still count."""
        for key, reducer, _ in self._gradient_reducers(threshold):
            for name, value in reducer.stats().items():
                self._stats_of_dropped[name] += value
            reducer.close()
            del self._reducers[key]

    def _gradient_reducers(self, threshold: float | None) -> list[tuple[ReducerKey, Reducer, list[Any]]]:
        return [
            (key, reducer, variables)
            for key, (reducer, variables) in self._reducers.items()
            if isinstance(reducer, Reducer) and key.name == "gradients" and key.fusion_threshold == threshold
        ]

    def plan(self) -> list[str]:
        """A line for each bucket of gradients."""
        return [line for _, reducer, _ in self._gradient_reducers(self.fusion_threshold) for line in reducer.descriptions]

    def reducers_of_plan(self, threshold: float | None = None) -> list[Reducer]:
        """The reducers of gradients that were made with this threshold."""
        return [reducer for _, reducer, _ in self._gradient_reducers(threshold)]

    def bucket_of(self) -> dict[int, int]:
        """The number of the bucket in which the gradient of each variable travels, by the variable's id."""
        return {
            id(variables[i]): number
            for _, reducer, variables in self._gradient_reducers(self.fusion_threshold)
            for number, bucket in enumerate(reducer.buckets)
            for i in bucket
        }

    # ---------------------------------------------------------------------------------------------- statistics

    def stats(self) -> dict[str, float]:
        """The statistics of the reducers of gradients on this rank."""
        total = dict(self._stats_of_dropped)
        for reducer in self:
            if reducer.name == "gradients":
                total = {name: total[name] + value for name, value in reducer.stats().items()}
        return total

    def gradient_steps(self) -> Iterator[tuple[Any, int]]:
        """Each variable of a reducer of gradients, and how often its gradient was reduced."""
        for reducer, variables in self._reducers.values():
            if reducer.name == "gradients":
                yield from ((variable, reducer.tensor_steps(i)) for i, variable in enumerate(variables))


def _close_all() -> None:
    """A rank that leaves the job may join its next generation, for which reducers are made anew."""
    for registry in _registries:
        registry.close()


runtime.before_leaving(_close_all)


def sum_type(dtype: str) -> str:
    """The type in which elements are added up so that no sum is rounded to 16 bits in between."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
