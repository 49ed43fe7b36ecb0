"""The arguments of `tnt.Model` for a pipeline."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tarantella import runtime
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.drivers.distributed_model import Options
from tarantella.keras.layers import SplitLayer
from tarantella.keras.pipeline.cut import refuse_uncuttable
from tarantella.pipeline_schedule import schedule as schedule_of
from tarantella.strategy import ParallelStrategy


class PipelineOptions(NamedTuple):
    """How a model is cut and how its micro-batches go through it.

    Attributes:
        stages: how many there are.
        replicas: how many pipelines there are, each with a part of every batch.
        micro_batches: of a batch, in all replicas together.
        names: of the layers with which the second and later stages begin; empty if the model says where they begin
            (`SplitLayer`), or if the best cut is to be found.
        reproducible: whether the bits must be those of one device.
    """

    stages: int
    names: tuple[str, ...]
    micro_batches: int
    schedule: str
    reproducible: bool
    replicas: int = 1


class PipelineArguments(NamedTuple):
    """The arguments as the user gave them."""

    strategy: ParallelStrategy
    num_pipeline_stages: int = 1
    pipeline_stages: int | Sequence[str] | None = None
    micro_batches: int | None = None
    schedule: str = "1f1b"

    def keywords(self) -> dict[str, Any]:
        """The arguments, as `tnt.Model` takes them."""
        named = self._asdict()
        return {"parallel_strategy": named.pop("strategy"), **named}

    def checked(self, model: Any, options: Options) -> PipelineOptions | None:
        """The options; None if no pipeline is asked for, or one rank is to do all of it.

        Raises:
            InvalidArgumentError: an argument has another value. UnsupportedError: this cannot be a pipeline.
        """
        if not isinstance(self.num_pipeline_stages, int) or self.num_pipeline_stages < 1:
            raise InvalidArgumentError(f"num_pipeline_stages is {self.num_pipeline_stages!r}: use a positive integer")
        if not self.strategy & ParallelStrategy.PIPELINING:
            if self.pipeline_stages is not None or self.micro_batches is not None:
                raise InvalidArgumentError(
                    "pipeline_stages and micro_batches are for pipelines: use parallel_strategy=tnt.ParallelStrategy.PIPELINING"
                )
            return None
        splits = n_splits(model)
        if self._needs_none(splits):
            return None
        if LEGACY:
            raise UnsupportedError(
                "pipelines need Keras 3, and TF_USE_LEGACY_KERAS chose legacy Keras: unset it, or use tnt.ParallelStrategy.DATA"
            )
        refuse_uncuttable(model)
        stages, names = self._stages(splits)
        ranks = self._ranks(stages)
        replicas = runtime.get_size() // ranks
        micro_batches = self._micro_batches(stages * replicas, options)
        if micro_batches % replicas:
            raise InvalidArgumentError(
                f"{micro_batches} micro-batches cannot be divided among {replicas} replicas of a pipeline: use "
                f"micro_batches={math.ceil(micro_batches / replicas) * replicas}"
            )
        schedule_of(self.schedule, ranks, stages, micro_batches // replicas)  # or an error
        _refuse_options(options)
        return PipelineOptions(stages, names, micro_batches, self.schedule, options.reproducible is not None, replicas)

    def _needs_none(self, splits: int) -> bool:
        if self.pipeline_stages is not None or splits:
            return self.pipeline_stages == 1
        return runtime.get_size() == 1 or (self.strategy == ParallelStrategy.ALL and self.num_pipeline_stages == 1)

    def _stages(self, splits: int) -> tuple[int, tuple[str, ...]]:
        given = self.pipeline_stages
        if given is None:
            return splits + 1 if splits else runtime.get_size(), ()
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            if splits and given != splits + 1:
                raise InvalidArgumentError(
                    f"pipeline_stages is {given}, and the model's SplitLayers make {splits + 1} stages: leave one of them out"
                )
            return given, ()
        if isinstance(given, Sequence) and not isinstance(given, str) and given and all(isinstance(n, str) for n in given):
            return len(given) + 1, tuple(given)
        raise InvalidArgumentError(
            f"pipeline_stages is {given!r}: use the number of stages, or the names of the layers with which the second and "
            "later stages begin"
        )

    def _ranks(self, stages: int) -> int:
        """The number of ranks of a pipeline, which must have the stages in equal numbers."""
        size = runtime.get_size()
        if size > stages:
            if size % stages:
                raise UnsupportedError(f"{stages} stages on {size} ranks: start {stages} ranks, or use pipeline_stages={size}")
            if not self.strategy & ParallelStrategy.DATA:
                raise UnsupportedError(
                    f"{stages} stages on {size} ranks: start {stages} ranks, use pipeline_stages={size}, or "
                    f"parallel_strategy=tnt.ParallelStrategy.ALL for {size // stages} replicas of the pipeline"
                )
            return stages
        if self.schedule == "interleaved" and stages % size:
            nearest = math.ceil(stages / size) * size
            raise InvalidArgumentError(
                f"{stages} stages cannot be divided evenly among {size} ranks: use pipeline_stages={nearest}, or {stages} ranks"
            )
        return size

    def _micro_batches(self, stages: int, options: Options) -> int:
        if self.num_pipeline_stages > 1 and self.micro_batches is None:
            runtime.logger.warning(
                "num_pipeline_stages=%d means the number of micro-batches, as it did in the predecessor: write "
                "micro_batches=%d, and pipeline_stages for the number of stages",
                self.num_pipeline_stages,
                self.num_pipeline_stages,
            )
        given = self.micro_batches or (self.num_pipeline_stages if self.num_pipeline_stages > 1 else None)
        if self.micro_batches is not None and (not isinstance(self.micro_batches, int) or self.micro_batches < 1):
            raise InvalidArgumentError(f"micro_batches is {self.micro_batches!r}: use a positive integer")
        if given is None:
            return options.reproducible or 2 * stages
        if options.reproducible not in (None, given):
            raise InvalidArgumentError(
                f"reproducible={options.reproducible} and micro_batches={given}: in a pipeline micro-batches are the shards of "
                "a batch, so leave one of them out or give both the same value"
            )
        return int(given)


def _refuse_options(options: Options) -> None:
    for name in ("gradient_dtype", "bucket_hook", "fusion_threshold"):
        if getattr(options, name) is not None:
            raise UnsupportedError(
                f"{name} is for gradients that ranks reduce in buckets, and a pipeline has none: leave it out"
            )
    if options.across_ranks:
        raise UnsupportedError("across_ranks=True and a pipeline cannot go together: a micro-batch has its own samples only")


def n_splits(model: Any) -> int:
    """The most SplitLayers on a way through the model."""
    graph = None if LEGACY else adapter.layer_graph(model)
    if graph is None:
        return sum(isinstance(layer, SplitLayer) for layer in getattr(model, "layers", []))
    return max(stages_by_splits(adapter.layer_calls(graph)), default=0)


def stages_by_splits(calls: Sequence[Any]) -> list[int]:
    """The stage of each call: the most SplitLayers on a way to it."""
    after: dict[int, int] = {}  # by the id of a symbolic tensor
    stages = []
    for call in calls:
        stage = max((after.get(id(tensor), 0) for tensor in call.input_tensors), default=0)
        stages.append(stage)
        after.update({id(t): stage + isinstance(call.operation, SplitLayer) for t in call.outputs})
    return stages
