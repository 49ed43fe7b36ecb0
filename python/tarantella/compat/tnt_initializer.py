"""`tnt.tnt_initializer`: the predecessor initialises itself when it is imported. Scripts need not call it."""

from tarantella import gpus, runtime
from tarantella.errors import InvalidArgumentError

__all__ = ["init", "setup_gpus"]


def init() -> None:
    """Joins the job. The first call that needs the job does so by itself."""
    runtime.world()


def setup_gpus(rank: int, ngpus: int | None = None) -> None:
    """Lets TensorFlow see one GPU, number ``rank % ngpus``. It sees this rank's own since it was imported (docs/gpu.md).

    Args:
        rank: of this process, among those of its node or of the job.
        ngpus: how many GPUs of the node to use; None: all, 0: none.

    Raises:
        InvalidArgumentError: there are fewer GPUs, or TensorFlow has used them already.
    """
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if ngpus is not None and ngpus > len(devices):
        raise InvalidArgumentError(f"setup_gpus: ngpus is {ngpus}, and this process sees {len(devices)}: leave it out for all")
    try:
        tf.config.set_visible_devices(gpus.device_of_rank(gpus.first_devices(devices, ngpus), rank), "GPU")
    except RuntimeError:
        raise InvalidArgumentError("setup_gpus: TensorFlow has used GPUs already: call it before it computes") from None
