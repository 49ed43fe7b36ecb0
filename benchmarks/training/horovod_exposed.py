"""What exposed.py measures, with Horovod: run by it under mpirun, with an interpreter that has TensorFlow 2.15 and Horovod."""

from __future__ import annotations

import json
import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
import workloads


def main() -> None:
    """Measures and prints the result as JSON on rank 0."""
    name, rounds, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hvd.init()
    keras = tf.keras
    ranks, rank = hvd.size(), hvd.rank()
    models = [workloads.build(keras, name) for _ in range(2)]
    optimizers = [keras.optimizers.legacy.SGD(workloads.LEARNING_RATE) for _ in models]
    optimizers[0] = hvd.DistributedOptimizer(optimizers[0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for model, optimizer in zip(models, optimizers, strict=True):
        model.compile(optimizer=optimizer, loss=loss)
    x, y = workloads.samples(models[0], steps * workloads.GLOBAL_BATCH)
    part = tf.data.Dataset.from_tensor_slices((x[rank::ranks], y[rank::ranks]))
    part = part.batch(workloads.GLOBAL_BATCH // ranks, drop_remainder=True).cache().prefetch(2)
    timers = [workloads.step_timer(keras) for _ in models]
    for turn in range(rounds + 1):
        for model, timer in zip(models, timers, strict=True):
            hvd.allreduce(tf.zeros(1), name="barrier")
            model.fit(part, verbose=0, callbacks=[timer])
            if turn == 0:
                timer.seconds.clear()
    own = tf.constant([[workloads.median_ms(timer.seconds) for timer in timers]])
    step, without = np.max(hvd.allgather(own, name="medians").numpy(), axis=0)
    if rank == 0:
        result = {"step_ms": float(step), "step_ms_without_communication": float(without), "exposed_ms": float(step - without)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
