"""How far `tarantella simulate` is off on two hosts: `python tests/multihost/predicted_step.py`.

Two ranks of one host write a timeline. From it their step is predicted for two namespaces with a link of 1 Gbit/s
(two_hosts.py), one rank on each, and then measured. Says both for each batch; asserts nothing. The machine must have nothing
else to do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tarantella.scaling import model
from tarantella.scaling.platform import read_machine
from tarantella.scaling.prediction import predict
from tarantella.scaling.timeline import read_step
from two_hosts import ADDRESSES, TwoHosts, two_hosts, why_not

RUN_SECONDS = 120
STEPS = 16
# latency and overheads of TCP between namespaces; memory of one core
PLATFORM = """<?xml version="1.0"?>
<platform version="4.1">
  <config>
    <prop id="smpi/bw-factor" value="0:0.94"/>
    <prop id="smpi/os" value="0:15e-6:0"/>
  </config>
  <cluster id="hosts" prefix="host-" suffix="" radical="0-1" speed="1Gf" bw="1Gbps" lat="20us">
    <prop id="ranks" value="1"/>
    <prop id="memory_bandwidth" value="10e9"/>
  </cluster>
</platform>
"""


def train(batch: int) -> None:
    """What each rank runs: a step of the same work on any number of ranks."""
    import keras
    import numpy as np

    import tarantella as tnt

    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(512, activation="relu") for _ in range(10)]
    network = tnt.Model(keras.Sequential([keras.Input((256,)), *hidden, keras.layers.Dense(10)]))
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    whole = batch * tnt.get_size()
    x = np.random.default_rng(0).random((whole * STEPS, 256), np.float32)
    network.fit(x, np.arange(len(x)) % 10, batch_size=whole, verbose=0, shuffle=False)


def run(hosts: TwoHosts, apart: bool, batch: int, timeline: Path) -> None:
    """Two ranks, each with one thread: on one host, or apart on two."""
    launcher = [str(Path(sys.executable).with_name("tarantella")), "--timeline", str(timeline)]
    where = ["--hosts", ",".join(f"{address}:1" for address in ADDRESSES)] if apart else ["-n", "2"]
    own = ["--", str(Path(__file__).resolve()), "--train", str(batch)]
    one_thread = ["-x", "OMP_NUM_THREADS=1", "TF_NUM_INTRAOP_THREADS=1", "TF_NUM_INTEROP_THREADS=1"]
    ended = hosts.run([*launcher, *where, *one_thread, *own], timeout=RUN_SECONDS, env={"CUDA_VISIBLE_DEVICES": "-1"})
    if ended.code != 0:
        raise SystemExit(f"the run failed: {ended.said}")


def compare(hosts: TwoHosts, batches: Sequence[int], folder: Path) -> None:
    platform = folder / "link.xml"
    platform.write_text(PLATFORM)
    machine = read_machine(platform)

    def times(ranks: int, size: int) -> tuple[float, str]:
        cost = model.all_reduce(machine, ranks, size)
        return cost.seconds, cost.limit

    for batch in batches:
        for apart in (False, True):
            run(hosts, apart, batch, folder / f"{batch}-{apart}.json")
        (predicted,) = predict(read_step(folder / f"{batch}-False.json"), [2], times, strong=False)
        measured = read_step(folder / f"{batch}-True.json").measured
        print(
            f"batch {batch}: predicted {predicted.step * 1e3:.1f} ms ({predicted.exposed * 1e3:.1f} exposed), "
            f"measured {measured * 1e3:.1f} ms, off by {predicted.step / measured - 1:+.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 2048], help="samples of each rank in a step")
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train)
        return
    reason = why_not()
    if reason:
        raise SystemExit(reason)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with two_hosts() as hosts, tempfile.TemporaryDirectory() as folder:
        compare(hosts, given.batches, Path(folder))


if __name__ == "__main__":
    main()
