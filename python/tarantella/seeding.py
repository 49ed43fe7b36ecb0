"""The global seed of TensorFlow, and a seed that is the same on all ranks of a job."""

import functools
import hashlib
import os
import secrets

from tarantella import environment, mpi, variables

SPREAD = 0x9E3779B1  # 2**32 over the golden ratio: its multiples are far from each other (Knuth's multiplicative hashing)
"""By it one seed is derived from another."""


def agreed_seed() -> int:
    """A random number that is the same on all ranks of the job, however often it is started again, and another in the next job.

    Collective where neither our launcher nor the one of MPI gives the job a name.
    """
    token = os.environ.get(variables.JOB) or os.environ.get(variables.TOKEN, "")
    if not token:
        token = _agreed_name() if environment.in_job() else str(os.getpid())
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "little") & 0x7FFFFFFF


@functools.cache
def _agreed_name() -> str:
    name = mpi.job_name() if mpi.started_by_mpi() else ""
    if not name:
        from tarantella.collectives import broadcast  # imports NumPy

        name = str(broadcast(secrets.randbits(62)))
    return name


def global_seed() -> int | None:
    """The seed that the script gave to `tf.random.set_seed` or `keras.utils.set_random_seed`, if any."""
    import tensorflow as tf

    found: list[int | None] = []
    with tf.init_scope():  # a new graph takes the seed; nothing else that is public tells it
        tf.function(lambda: found.append(tf.compat.v1.get_default_graph().seed), autograph=False).get_concrete_function()
    return found[0]


def agree_on_global_seed(seed: int | None = None) -> None:
    """Arrays are shuffled by a random op of TensorFlow: without a seed of the script's, all ranks take this or the job's."""
    if global_seed() is None:
        import tensorflow as tf

        tf.random.set_seed(agreed_seed() if seed is None else seed)
