"""What is read of TensorFlow's private parts, datasets apart. TensorFlow 2.16, 2.18, 2.20 and 2.21 have all of it alike."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def operation_seeds() -> random.Random | None:
    """The generator that gives seeds to random operations without one; None before a global seed is set.

    `tf.random.set_seed` makes it anew from the seed. No public function tells how far it has come since.
    """
    from tensorflow.python.eager import context

    generator: random.Random | None = getattr(context.context(), "_rng", None)
    return generator


@functools.cache
def xla_operations() -> frozenset[str]:
    """The operations that XLA can compile on any processor; empty if TensorFlow does not say.

    The public API compiles or fails: it has no list of what would fail.
    """
    try:
        from tensorflow.python.util import pywrap_xla_ops

        return frozenset(pywrap_xla_ops.get_cpu_kernel_names())
    except (ImportError, AttributeError):
        return frozenset()


def converted_like_caller(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, rewritten by AutoGraph if what calls this is.

    The public `tf.function` decides by its own argument and does not know whether its caller was rewritten.
    """
    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(function, autograph.control_status_ctx())
    return converted
