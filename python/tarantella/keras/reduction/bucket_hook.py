"""A user's function that sees each bucket of gradients after it is packed and before it is sent."""

import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella._native import Dtype

_REASON_BYTES = 255  # what tnt_packed_bucket_t has room for


@dataclass(frozen=True)
class PackedBucket:
    """A bucket as a `bucket_hook` gets it: this rank's weighted gradients in one vector, as they will be sent.

    Attributes:
        index: the bucket's number; buckets come in the order 0, 1, 2 …
        data: the gradients one after another: one dimension, of the type in which they are sent (``gradient_dtype``, else
            their own). May be changed in place. Valid during the call only: copy values to keep them.
        tensors: which of the model's trainable variables lie in it, by position, in the order in which they lie there.
        names: their paths.
    """

    index: int
    data: NDArray[Any]
    tensors: tuple[int, ...]
    names: tuple[str, ...]


class BucketHook:
    """The function as the library calls it, on any thread, with the GIL held. It must not refer to the reducer that owns it."""

    def __init__(self, function: Callable[[PackedBucket], object], names: Sequence[str]) -> None:
        self._function = function
        self._names = tuple(names)
        self.error: Exception | None = None

    def __call__(self, index: int, memory: memoryview, dtype: Dtype, tensors: list[int]) -> str | None:
        """Calls the function. Returns the text of its exception, cut to the room that the C API has."""
        try:
            self._call(index, memory, dtype, tuple(tensors))
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # its frames refer to the array
            self.error = error
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return text.encode()[:_REASON_BYTES].decode(errors="ignore")
        return None

    def _call(self, index: int, memory: memoryview, dtype: Dtype, tensors: tuple[int, ...]) -> None:
        data = np.frombuffer(memory, tf.as_dtype(dtype.name).as_numpy_dtype)
        kept = weakref.ref(data)  # a view keeps it alive
        self._function(PackedBucket(index, data, tensors, tuple(self._names[i] for i in tensors)))
        del data
        if kept() is not None:
            raise RuntimeError("it has kept the array of the bucket, which is valid during the call only: copy it")
