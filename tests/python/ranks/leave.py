"""One rank ends, at a certain moment and in a certain way, while the others go on to need it. No TensorFlow.

leave.py FOLDER RANK WHEN HOW

Each rank that gets an error writes its class, its text and how long it waited to `RANK.json` in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

folder, leaver, when, how = sys.argv[1:]
rank = int(os.environ["TNT_RANK"])


def leave(now: str) -> None:
    if rank != int(leaver) or now != when:
        return
    Path(folder, "left").write_text(str(time.monotonic()))
    if how == "raise":
        raise ValueError("what went wrong")
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    elif how.startswith("_exit"):
        os._exit(int(how.removeprefix("_exit")))
    else:
        sys.exit(int(how))


leave("before import")
import numpy as np  # noqa: E402

import tarantella as tnt  # noqa: E402

leave("before joining")
try:
    tnt.get_rank()
    leave("after joining")
    for step in range(1000000):
        if step == 20:
            leave("in the middle")
        tnt.all_reduce(np.ones(100))
except tnt.TarantellaError as error:
    left = float(Path(folder, "left").read_text())
    found = {"kind": type(error).__name__, "text": str(error), "seconds": time.monotonic() - left}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    raise
