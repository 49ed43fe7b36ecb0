"""Seconds that a lost host costs an elastic training: `python tests/multihost/lost_host.py --how cut --timeout 15`.

Three hosts (network namespaces) have a rank each, of a small CNN. After 40 steps one of them is lost: its link is cut, or all
that runs there is killed. Prints when no step has ended for the longest time since, for each rank that is left. Asserts
nothing. Needs root.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from many_hosts import switched_hosts
from two_hosts import TwoHosts, cut_off, why_not

SHELL = Path(__file__).with_name("remote_shell.py")
RUN_SECONDS = 400
TOLD = ("lost with its host", "goes on", "Error")
SCRIPT = """
import os, sys, time
import keras
import numpy as np
import tarantella as tnt

folder, number = sys.argv[1], os.environ["TNT_INTERNAL_ELASTIC"]
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(600, 16, 16, 1)).astype("float32")
y = (x.sum((1, 2, 3)) > 0).astype("int32")
relu = {"activation": "relu"}
layers = [keras.layers.Conv2D(8, 3, **relu), keras.layers.Conv2D(16, 3, **relu), keras.layers.Flatten(), keras.layers.Dense(2)]
model = tnt.Model(keras.Sequential([keras.Input((16, 16, 1)), *layers]))
model.compile(keras.optimizers.Adam(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class Times(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        with open(f"{folder}/{number}.times", "a") as file:
            file.write(f"{time.time()}\\n")
        if self.steps == 40:
            open(f"{folder}/begun", "w").close()
        time.sleep(0.02)


model.fit(x, y, batch_size=24, epochs=6, verbose=0, callbacks=[Times()])
"""


def kill_all_on(hosts: TwoHosts, host: int) -> None:
    """Kills all that runs on a host."""
    listed = subprocess.run(["ip", "netns", "pids", hosts.namespaces[host]], check=True, capture_output=True, text=True)
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def lose(how: str, victim: int, timeout: float, folder: Path) -> None:
    """Trains, loses the host, and prints what that took."""
    (folder / "train.py").write_text(SCRIPT)
    with switched_hosts(3) as (hosts, addresses):
        servers = [hosts.start(i, [sys.executable, str(SHELL), "--serve", one]) for i, one in enumerate(addresses)]
        for server in servers:
            assert server.stdout is not None
            server.stdout.readline()
        a, b, c = addresses
        options = [
            "--elastic",
            "--hosts",
            f"{b},{c},{a}",
            "--remote-shell",
            f"{sys.executable} {SHELL}",
            "--timeout",
            str(timeout),
        ]
        command = [sys.executable, "-m", "tarantella", *options, "--", str(folder / "train.py"), str(folder)]
        job = hosts.start(0, command, {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"})
        while not (folder / "begun").exists() and job.poll() is None:
            time.sleep(0.01)
        lost = time.time()
        (cut_off if how == "cut" else kill_all_on)(hosts, victim)
        _, said = job.communicate(timeout=RUN_SECONDS)
        hosts.kill_all()
        for server in servers:
            server.communicate(timeout=RUN_SECONDS)
    print(*(line for line in said.splitlines() if any(word in line for word in TOLD)), sep="\n")
    for file in sorted(folder.glob("*.times")):
        times = [float(line) for line in file.read_text().split()]
        after = [(begin - lost, end - lost) for begin, end in itertools.pairwise(times) if end > lost]
        if times[-1] > lost + 1:
            begin, end = max(after, key=lambda one: one[1] - one[0])
            print(f"rank {file.stem}: no step has ended from {begin:.2f} to {end:.2f} s after the loss")


def main() -> int:
    """Prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=("cut", "kill"), default="kill")
    parser.add_argument(
        "--victim", type=int, choices=(1, 2), default=1, help="the host of rank 0 (1, the default) or of rank 1"
    )
    parser.add_argument("--timeout", type=float, default=20, help="TNT_TIMEOUT (default: 20)")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"lost_host: skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lose(given.how, given.victim, given.timeout, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
