"""The types in which tensors travel."""

from typing import Any

import tensorflow as tf

from tarantella.keras.reduction.reducer import WIRE_DEFAULT


class Compressor:
    """Sends tensors of floats in another type; None: in their own."""

    dtype: tf.DType | None = None

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what `decompress` needs."""
        if cls.dtype is None or not tensor.dtype.is_floating:
            return tensor, tensor.dtype
        return tf.cast(tensor, cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The received tensor in the type that it had."""
        return tf.cast(tensor, ctx)

    @classmethod
    def wire_dtype(cls) -> str | int:
        """The same for buckets of gradients, as `Reducer` takes it."""
        return WIRE_DEFAULT if cls.dtype is None else str(cls.dtype.name)


class NoneCompressor(Compressor):
    """As they are."""


class FP16Compressor(Compressor):
    """In float16."""

    dtype = tf.float16


class BF16Compressor(Compressor):
    """In bfloat16, which has the range of float32."""

    dtype = tf.bfloat16


class Compression:
    """The choices."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
