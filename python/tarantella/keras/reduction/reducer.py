"""The library's reducer as TensorFlow code sees it: it sums one list of tensors over ranks, in graphs and eagerly."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella import _native, runtime
from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import run_independently
from tarantella.keras.reduction import device, device_placement, graph_order, ops
from tarantella.keras.reduction.bucket_hook import BucketHook, PackedBucket

_open_reducers: "weakref.WeakSet[Reducer]" = weakref.WeakSet()


WIRE_OWN = _native.WIRE_OWN
WIRE_DEFAULT = _native.WIRE_DEFAULT


@dataclass(frozen=True)
class Spec:
    """One tensor of a plan: its name in errors and logs, the number of its elements, and their type (``"float32"``)."""

    name: str
    count: int
    dtype: str


class Reducer:
    """Sums the same list of tensors over all ranks, again and again. Making one is collective.

    Args:
        context: text that must be the same on all ranks.
        wire_dtype: ``"float16"`` or ``"bfloat16"``: float32 and float64 tensors are sent in this type. WIRE_OWN: every tensor
            is sent in its own; WIRE_DEFAULT: as the environment says.
        bucket_hook: sees each bucket before it is sent. Ranks may have different ones.
        fusion_threshold: bytes at which a bucket is closed; None: the environment's, else chosen by the library.
        gradient_order: the tensors' positions in the order in which backward makes them; None: from the last to the first.
        gradients: the tensors are gradients, reduced on the GPU if backward runs there. A bucket hook sees host memory: with
            one, gradients are reduced on the host, and all ranks need a hook.
        tree: sums over ranks are taken as (0 + 1) + (2 + 3), neighbours first. With `ops.tree_add` within each rank, 1, 2, 4,
            8, ... ranks give the same bits, for float32, float64 and integers. Equal on all ranks.
        owners: for each tensor, the rank that needs its sum. Its result is undefined on the other ranks. Empty: all ranks
            need all sums.

    Raises:
        MismatchError: a rank's list, TensorFlow, Keras or `context` differs; the text names the rank and the tensor.
    """

    def __init__(
        self,
        name: str,
        specs: Sequence[Spec],
        context: str = "",
        wire_dtype: str | int = WIRE_OWN,
        bucket_hook: Callable[[PackedBucket], object] | None = None,
        fusion_threshold: float | None = None,
        gradient_order: Sequence[int] | None = None,
        gradients: bool = False,
        tree: bool = False,
        owners: Sequence[int] = (),
    ) -> None:
        for spec in specs:
            if spec.dtype not in _native.Dtype.__members__:
                raise TypeError(f"cannot reduce {spec.name}: elements of type {spec.dtype} are not supported")
        self.device = device.device_of_reducer(bucket_hook is not None) if gradients else device_placement.HOST
        versions = f"TensorFlow {tf.__version__}, {adapter.version()}"
        self._native = _native.Reducer(
            runtime.world(),
            [
                (name, spec.count, _native.Dtype[spec.dtype])
                for name, spec in zip(_different(spec.name for spec in specs), specs, strict=True)
            ],
            name,
            f"{versions}, {context}" if context else versions,
            fusion_threshold=-1.0 if fusion_threshold is None else float(fusion_threshold),
            wire_dtype=int(_native.Dtype[wire_dtype]) if isinstance(wire_dtype, str) else wire_dtype,
            gradient_order=gradient_order or (),
            device=self.device,
            determinism=_native.Determinism.RANKS if tree else _native.Determinism.DEFAULT,
            owners=owners,
        )
        self.hook = BucketHook(bucket_hook, [spec.name for spec in specs]) if bucket_hook is not None else None
        if self.hook is not None:
            self._native.set_hook(self.hook)
        self.name = name
        self.specs = tuple(specs)
        self.gradient_order = tuple(gradient_order or ())
        self.fusion_threshold: int = self._native.fusion_threshold
        self.buckets: list[list[int]] = self._native.buckets
        self.descriptions: list[str] = self._native.descriptions
        self.attachment = ops.attach(self._native.address, self.device != device_placement.HOST)
        _open_reducers.add(self)

    def reduce(self, tensors: Sequence[Any], scale: Any = 1.0) -> list[tf.Tensor]:
        """The sum over ranks of ``scale * tensor``, for the tensors of the specs in their order; graph or eager.

        Each bucket starts as soon as its own tensors exist, while others are still being computed. In a graph every Start waits
        for the end of this reducer's earlier step. Every Finish depends on all Starts, so that a Finish which blocks one of few
        executor threads cannot keep a Start from running; and on the last collective before, else two ranks with one free
        thread each could block it in Finishes of different reducers, and wait for each other's Starts for ever.
        """
        if not tensors:
            return []
        begin_after, before = graph_order.outputs_before(self.attachment), graph_order.last_outputs()
        with device_placement.on_host():  # where it is read
            scale = tf.cast(scale, tf.float64)
        started = []
        for bucket, members in enumerate(self.buckets):
            own = [tf.convert_to_tensor(tensors[i]) for i in members]
            with tf.control_dependencies(begin_after), device_placement.device_of_ops(self.device):
                outputs = ops.library().tnt_start(
                    scale=scale, gradients=own, reducer=self.attachment, bucket=bucket, tensors=members
                )
            run_independently(outputs)  # inputs are all the order needed: else bucket 1 would start after bucket 0
            started.append(outputs)
        starts = [] if tf.executing_eagerly() else [outputs[0] for outputs in started]
        reduced: list[tf.Tensor] = [None] * len(tensors)
        with tf.control_dependencies([tensor.op for tensor in (*starts, *_in_graph_of(starts, before))]):
            for bucket, members in enumerate(self.buckets):
                with device_placement.device_of_ops(self.device):
                    finished = ops.library().tnt_finish(started=started[bucket], reducer=self.attachment, bucket=bucket)
                run_independently(finished)
                for position, tensor in zip(members, finished, strict=True):
                    reduced[position] = tensor
        graph_order.record(reduced)
        return reduced

    def take_part(self) -> None:
        """A step, eagerly, to which this rank gives zeros. Collective."""
        self.reduce([tf.zeros([spec.count], spec.dtype) for spec in self.specs], 0.0)

    def tensor_steps(self, index: int) -> int:
        """How often the tensor was reduced so far."""
        return int(self._native.tensor_steps(index))

    def check(self) -> None:
        """Raises the error of a step that has ended without a result."""
        self._native.check()

    def stats(self) -> dict[str, float]:
        """Totals so far: ``steps``, ``bytes``, ``busy_seconds`` and ``exposed_seconds`` of this rank."""
        return dict(self._native.stats())

    def close(self) -> None:
        """Stops the reducer; a graph that still uses it fails with an error that says so."""
        if self in _open_reducers:
            _open_reducers.discard(self)
            self._native.close()
            ops.detach(self.attachment)

    def __del__(self) -> None:
        self.close()


def _in_graph_of(starts: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [output for output in outputs if starts and output.graph is starts[0].graph]


def _different(names: Iterable[str]) -> list[str]:
    """The names, the later of equal ones with a number: Keras allows variables with equal paths, the library does not."""
    found: dict[str, None] = {}
    for name in names:
        number, different = 1, name
        while different in found:
            number += 1
            different = f"{name} ({number})"
        found[different] = None
    return list(found)


def check_all() -> None:
    """Raises the error of a step whose sums on the GPU are lost. Called before its weights are saved or returned.

    CUDA reports no error of a collective that was aborted: the work ends, and the optimizer uses the buffer as it
    is. Waits for the GPU, if there are reducers of its memory.
    """
    on_gpu = [reducer for reducer in _open_reducers if reducer.device != device_placement.HOST]
    if on_gpu:
        tf.test.experimental.sync_devices()
    for reducer in on_gpu:
        reducer.check()


def close_all(reducers: Iterable[Reducer] | None = None) -> None:
    """Closes the reducers, or all there are."""
    for reducer in list(_open_reducers if reducers is None else reducers):
        reducer.close()


runtime.before_leaving(close_all)
