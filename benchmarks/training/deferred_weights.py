"""Memory of the ranks of a pipeline that build a large model: `tarantella -n 8 -- benchmarks/training/deferred_weights.py`.

Dense layers in as many stages as there are ranks, trained by Adam. Printed is by how much the resident set of the rank that
needs most has grown when the model is built, and at its peak; with `--at-once` as without `tnt.deferred_weights`.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import keras
import numpy as np
import workloads

import tarantella as tnt


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--at-once", action="store_true", help="all ranks make all weights when they build the model")
    given = parser.parse_args()
    data = np.ones((16, given.width), "f4")
    small = tnt.Model(keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)]))
    small.compile("adam", "mse", jit_compile=False)
    small.fit(data[:, :8], data[:, :8], verbose=0)  # TensorFlow's own memory, threads and connections
    before = workloads.resident_mib()
    with nullcontext() if given.at_once else tnt.deferred_weights():
        layers = [keras.layers.Dense(given.width, name=f"layer{i}") for i in range(given.layers)]
        model = keras.Sequential([keras.Input((given.width,)), *layers])
    built = workloads.resident_mib()
    ranks = tnt.get_size()
    begins = [f"layer{stage * given.layers // ranks}" for stage in range(1, ranks)]
    trained = tnt.Model(model, tnt.ParallelStrategy.PIPELINING, micro_batches=8, pipeline_stages=begins)
    trained.compile(keras.optimizers.Adam(1e-5), "mse", jit_compile=False)
    trained.fit(data, data, batch_size=16, epochs=2, verbose=0)
    own = np.array([built - before, workloads.peak_mib() - before])
    most = np.max(tnt.all_gather(own), axis=0)
    if tnt.is_master_rank():
        weights = 4 * model.count_params() / 2**20
        print(
            f"{ranks} ranks, {weights:.0f} MiB of weights: grown by {most[0]:.0f} MiB when built, {most[1]:.0f} MiB at the peak"
        )


if __name__ == "__main__":
    main()
