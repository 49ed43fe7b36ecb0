"""elastic_leaks.py FOLDER KILLS: so often a rank is lost and another one joins; rank 0, which stays, writes what it holds then.

Every other rank kills itself in its third step with all ranks there, as long as ranks with higher numbers are to come.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tensorflow import keras

import tarantella as tnt
from tarantella import collectives

FOLDER, KILLS = Path(sys.argv[1]), int(sys.argv[2])
NUMBER = int(os.environ["TNT_INTERNAL_ELASTIC"])
RANKS = 2


def held(pid: int | str) -> dict[str, int]:
    """What a process holds: descriptors, threads, mappings, those of them that are shared memory, and resident MB."""
    process = Path("/proc", str(pid))
    maps = (process / "maps").read_text().splitlines()
    resident = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
    links = [os.readlink(one) for one in (process / "fd").iterdir() if one.is_symlink()]
    of_peer = links.count("anon_inode:[pidfd]")  # a rank has one for its peer once it has waited for it
    return {
        "descriptors": len(links) - of_peer + max(of_peer, 1),
        "threads": len(list((process / "task").iterdir())),
        "maps": len(maps),
        "shared": sum("/memfd:" in line for line in maps),
        "resident": int(resident.split()[1]) // 1024,
    }


class Disturber(keras.callbacks.Callback):
    complete = 0  # steps in a row with all ranks there
    found: ClassVar[list[dict[str, dict[str, int]]]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.complete = self.complete + 1 if tnt.get_size() == RANKS else 0
        if self.complete == 2 and NUMBER == 0:
            gc.collect()
            self.found.append({"rank": held("self"), "launcher": held(os.getppid())})
        if self.complete == 3 and 0 < NUMBER <= KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0 if self.complete else 0.05)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        is_over = len(self.found) > KILLS
        self.model.stop_training = bool(collectives.all_reduce(int(is_over), "max"))


keras.utils.set_random_seed(7)
x = np.random.default_rng(0).normal(size=(2400, 4)).astype(np.float32)
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)]))
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, (x.sum(1) > 0).astype(np.int32), batch_size=12, epochs=100_000, verbose=0, callbacks=[Disturber()])
if NUMBER == 0:
    (FOLDER / "held.json").write_text(json.dumps(Disturber.found))
