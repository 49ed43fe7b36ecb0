"""The valid arguments of `tnt.Model(model, reproducible=V)`, and the settings that TensorFlow needs for it."""

from typing import Any

import tensorflow as tf

from tarantella import environment, generations, runtime, settings
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.step import normalization


def number_of_shards(reproducible: Any, gradient_dtype: str | None, bucket_hook: Any) -> int | None:
    """The number of shards into which each batch is cut; None: one for each rank. Prepares TensorFlow.

    Args:
        reproducible, gradient_dtype, bucket_hook: as given to `tnt.Model`.

    Raises:
        InvalidArgumentError: it is no power of two. UnsupportedError: it cannot be combined with the other options.
    """
    shards = settings.reproducible() if reproducible is None else reproducible
    if shards is None:
        return None
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1 or shards & (shards - 1):
        raise InvalidArgumentError(f"reproducible is {shards!r}: use the number of shards of a batch, a power of two such as 8")
    if gradient_dtype is not None or settings.gradient_dtype() != "none":
        raise UnsupportedError(
            "reproducible and gradient_dtype (TNT_GRADIENT_DTYPE) cannot go together: what is rounded on its way to other "
            "ranks depends on how many there are"
        )
    if bucket_hook is not None:
        raise UnsupportedError("reproducible and bucket_hook cannot go together: buckets depend on the number of ranks")
    _prepare_tensorflow()
    return shards


def _prepare_tensorflow() -> None:
    tf.config.experimental.enable_op_determinism()
    runtime.logger.info("reproducible: TensorFlow's deterministic operations are switched on")
    if environment.threads_chosen() and not tf.config.threading.get_intra_op_parallelism_threads():
        runtime.logger.warning(
            "reproducible: TensorFlow computes an operation with as many threads as a rank has cores, and convolutions give "
            "other bits with other numbers of them: set TNT_REPRODUCIBLE (tarantella --reproducible) or "
            "TF_NUM_INTRAOP_THREADS for results that do not depend on the number of ranks"
        )


def check_model(model: Any, shards: int, size: int) -> None:
    """Refuses a compiled model that cannot be trained reproducibly on so many ranks."""
    if shards % size and not generations.is_elastic():  # where those that can share them do, when others are lost
        raise InvalidArgumentError(
            f"reproducible={shards} on {size} ranks: the number of ranks must divide the number of shards, as do "
            f"{', '.join(str(1 << i) for i in range(shards.bit_length()))}"
        )
    if adapter.is_jit_compiled(model):
        raise UnsupportedError(
            "reproducible and jit_compile=True cannot go together: what XLA makes of a shard depends on what is compiled "
            "with it; compile the model with jit_compile=False"
        )
    if normalization.statistics(model):
        raise UnsupportedError(
            "reproducible: a synchronized BatchNormalization needs all shards at once, and a rank has them one after the "
            "other: use keras.layers.BatchNormalization, whose statistics are those of each shard on any number of ranks"
        )
