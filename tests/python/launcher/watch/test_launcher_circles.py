"""Ranks that wait for one another in a circle: the launcher warns soon, and `explain` says so. Others are not accused."""

from __future__ import annotations

import time

import pytest

from tarantella.launcher.watch import circle_watch

CIRCLE = """
    import threading
    import numpy as np
    import tarantella as tnt
    from tarantella import _native
    for step in range(3): tnt.all_reduce(np.zeros(10))
    everyone = tnt.Group().communicator("other")  # of the same ranks, and another one
    everyone.barrier()
    _native.progress(10 + rank, 0.0)
    def first(): tnt.all_reduce(np.zeros(4096))
    def second(): everyone.barrier()
    """
STUCK = """
    for call in (first, second) if rank == 0 else (second, first): call()
    """
GOES_ON = """
    threads = [threading.Thread(target=call) for call in ((first, second) if rank == 0 else (second, first))]
    threads[0].start(); time.sleep(4 * {interval}); threads[1].start()  # the other thread makes the missing call
    for thread in threads: thread.join()
    """
LATE = """
    if rank: time.sleep(4 * {interval})
    first()
    """


def test_a_circle_is_named_soon(here):
    began = time.monotonic()
    options = ["--timeout", 25, "--flight-recorder", "records"]
    result = here.ranks(2, CIRCLE + STUCK, *options)
    assert result.returncode != 0 and time.monotonic() - began < 60
    said = next(line for line in result.stderr.splitlines() if "warning: " in line)
    assert said.startswith("tarantella: warning: ranks wait for one another in different calls: rank 0 after 10 steps in call ")
    assert "all_reduce sum of 4096 float64 since " in said and " s for rank 1; rank 1 after 11 steps in call " in said
    assert {"communicator 1 of all ranks (shm)", "communicator 2 of all ranks (shm)"} == {
        f"communicator {number} of all ranks (shm)" for number in (1, 2) if f"communicator {number} of all ranks (shm)" in said
    }
    told = here.run("explain", "records").stdout.splitlines()
    assert told[-1] == (
        "So ranks 0 and 1 waited for one another in different calls, and none could go on: they did not make the same calls in "
        "the same order, as with different numbers of batches. Of steps, rank 0 had made 10, rank 1 had made 11."
    )


@pytest.mark.parametrize("body", [GOES_ON, LATE])
def test_ranks_that_may_go_on_are_not_ended(here, body):
    result = here.ranks(2, CIRCLE + body.format(interval=circle_watch.INTERVAL), "--timeout", 60)
    assert result.returncode == 0, result.stderr
    assert ("warning" in result.stderr) == (body == GOES_ON)
