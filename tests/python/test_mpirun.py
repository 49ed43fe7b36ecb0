"""Jobs that mpirun starts: the same scripts as under our launcher, on every transport; and how such a job ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from support.launch import run_alone
from support.mpirun import MpiResult, mpirun, needs, needs_mpirun

pytestmark = [needs_mpirun, pytest.mark.long]

PLACE = """
    import json, os
    import numpy as np
    import tarantella as tnt
    from tarantella.seeding import agreed_seed

    rank, size = tnt.get_rank(), tnt.get_size()
    mine = {
        "place": [rank, size, tnt.get_local_rank(), tnt.get_local_size()],
        "sum": float(tnt.all_reduce(np.full(100_000, rank + 1.0, np.float32))[-1]),
        "root": int(tnt.broadcast(rank, root=1)),
        "all": tnt.all_gather(rank).tolist(),
        "seed": agreed_seed(),
        "threads": os.environ.get("TF_NUM_INTRAOP_THREADS"),
        "master": tnt.is_master_rank(),
    }
    print(json.dumps(mine) + "\\n", end="", flush=True)
    """

FIT = """
    import sys
    import numpy as np
    import tarantella as tnt
    import keras

    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=(96, 5)).astype("float32")
    y = x @ np.arange(5, dtype="float32")[:, None]
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model = tnt.Model(model)
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    history = model.fit(x, y, batch_size=24, epochs=2, shuffle=False, verbose=0)
    if tnt.is_master_rank():
        print("losses", *(f"{loss:.6f}" for loss in history.history["loss"]), flush=True)
    """


def _script(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "rank.py"
    path.write_text(dedent(source))
    return path


OTHERS = [pytest.param(program, marks=needs(program)) for program in ("mpirun.openmpi", "mpirun.mpich")]
"""Debian has both, and one of them is its mpirun."""


def _check_places(result: MpiResult) -> None:
    assert result.code == 0, result.said
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]  # MPICH's UCX warns on standard output
    first, second = sorted(map(json.loads, lines), key=lambda line: line["place"])
    assert first["place"] == [0, 2, 0, 2] and second["place"] == [1, 2, 1, 2]
    assert first["master"] and not second["master"]
    assert int(first["threads"]) >= 1
    for rank in (first, second):
        assert rank["sum"] == 3.0 and rank["root"] == 1 and rank["all"] == [0, 1]
    assert first["seed"] == second["seed"]


@pytest.mark.parametrize("transport", ["auto", "shm", "mpi", "hierarchical"])
def test_ranks_know_their_place_and_reach_each_other(tmp_path: Path, transport: str):
    _check_places(mpirun(2, _script(tmp_path, PLACE), env={"TNT_TRANSPORT": transport, "TF_NUM_INTRAOP_THREADS": ""}))


@pytest.mark.parametrize("program", OTHERS)
def test_one_installation_fits_both_abis_of_mpi(tmp_path: Path, program: str):
    env = {"TNT_TRANSPORT": "mpi", "TF_NUM_INTRAOP_THREADS": "", "TNT_LOG_LEVEL": "INFO"}
    result = mpirun(2, _script(tmp_path, PLACE), env=env, program=program)
    _check_places(result)
    file = r"libmpi(ch)?\.so\.12" if program.endswith("mpich") else r"libmpi\.so\.40"
    assert re.search(rf"2 ranks on 1 nodes, transport mpi: .*/{file}\S*, MPI_THREAD_MULTIPLE", result.stderr), result.said


def test_an_mpi_of_neither_abi_is_refused(tmp_path: Path):
    """A library in the process has the name of Open MPI 2's."""
    source = f"""
        import ctypes, shutil
        import tarantella as tnt
        from tarantella import _native
        ctypes.CDLL(shutil.copy(_native.__file__, "{tmp_path}/libmpi.so.20." + str(tnt.environment.local_rank())))
        try:
            tnt.barrier()
        except tnt.UnsupportedError as error:
            print(error, flush=True)
        """
    result = mpirun(2, _script(tmp_path, source))
    refused = re.findall(rf"the process has loaded the MPI {tmp_path}/libmpi\.so\.20\.\d, whose ABI Tarantella", result.stdout)
    assert len(refused) == 2, result.said


@pytest.mark.parametrize("transport", ["auto", "mpi"])
def test_fit_computes_what_one_rank_does(tmp_path: Path, transport: str):
    script = _script(tmp_path, FIT)
    alone = run_alone(script, timeout=120).good().stdout.splitlines()
    result = mpirun(2, script, timeout=120, env={"TNT_TRANSPORT": transport, "TF_CPP_MIN_LOG_LEVEL": "2"})
    assert result.code == 0, result.said
    [losses] = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("losses")]
    assert [float(loss) for loss in losses] == pytest.approx([float(loss) for loss in alone[0].split()[1:]], rel=1e-5)


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_an_exception_of_one_rank_ends_the_others(tmp_path: Path, transport: str):
    source = """
        import tarantella as tnt
        tnt.barrier()
        if tnt.get_rank() == 1:
            raise RuntimeError("no more data")
        tnt.barrier()
        """
    result = mpirun(2, _script(tmp_path, source), timeout=30, env={"TNT_TRANSPORT": transport})
    assert result.code != 0
    assert "AbortedError: rank 1: the script ended with RuntimeError: no more data" in result.stderr, result.said


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_a_rank_that_leaves_is_named(tmp_path: Path, transport: str):
    source = """
        import tarantella as tnt
        tnt.barrier()
        if tnt.get_rank() == 0:
            tnt.barrier()
        """
    result = mpirun(2, _script(tmp_path, source), timeout=30, env={"TNT_TRANSPORT": transport})
    assert result.code != 0
    assert "PeerLostError: rank 1 left the job (its script has ended) while rank 0 in barrier" in result.stderr, result.said


@pytest.mark.parametrize("transport", ["shm", "mpi", "mpi:native"])
def test_a_rank_that_does_not_come_is_named(tmp_path: Path, transport: str):
    source = """
        import time
        import tarantella as tnt
        tnt.barrier()
        if tnt.get_rank() == 1:
            time.sleep(20)
        tnt.barrier()
        """
    env = {"TNT_TRANSPORT": transport, "TNT_TIMEOUT": "1"}
    result = mpirun(2, _script(tmp_path, source), timeout=15, env=env)
    assert result.code != 0
    assert "DeadlineError: rank 1 did not arrive within 1 s while rank 0 in barrier (call 2) waited" in result.stderr, (
        result.said
    )


# Over MPI the sum is sent from the array itself. Rank 1 comes when rank 0 has given up and uses its memory for something else.
@pytest.mark.parametrize("transport", ["mpi", "mpi:native"])
def test_a_sum_that_failed_leaves_its_memory_alone(tmp_path: Path, transport: str):
    source = """
        import time
        import numpy as np
        import tarantella as tnt
        rank = tnt.get_rank()
        data = np.full(1 << 20, rank + 1.0, np.float32)
        assert (tnt.all_reduce(data) == 3).all()
        if rank == 1:
            time.sleep(2.5)
        try:
            tnt.all_reduce(data)
        except tnt.DeadlineError:
            data[:] = 7
            time.sleep(3)
            print("unchanged" if (data == 7).all() else "changed", flush=True)
            raise
        """
    env = {"TNT_TRANSPORT": transport, "TNT_TIMEOUT": "1"}
    result = mpirun(2, _script(tmp_path, source), timeout=30, env=env)
    assert result.code != 0
    assert set(result.stdout.split()) == {"unchanged"}, result.said
    assert "DeadlineError: rank 1 did not arrive within 1 s while rank 0 in all_reduce" in result.stderr, result.said


@pytest.mark.parametrize("stopped", ["before", "inside"])
def test_a_rank_that_is_stopped_before_or_in_mpi_init_is_named(tmp_path: Path, stopped: str):
    """MPI_Init itself waits for ever. TNT_TIMEOUT is too short for it: 10 s count."""
    source = f"""
        import os, signal, threading, time
        import tarantella as tnt
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
        def stop():
            def names(): return open("/proc/net/unix").read()
            while {stopped == "inside"} and f"tarantella-join-{{os.geteuid()}}-1-" not in names(): pass
            os.kill(os.getpid(), signal.SIGSTOP)
        if rank == 1:
            threading.Thread(target=stop, daemon=True).start() if {stopped == "inside"} else stop()
        elif {stopped == "inside"}:
            time.sleep(1)  # so that rank 1 waits inside
        tnt.barrier()
        """
    result = mpirun(2, _script(tmp_path, source), timeout=20, env={"TNT_TIMEOUT": "2"})
    assert result.code != 0
    inside = "called MPI_Init, and does not answer, as if it were stopped"
    why = inside if stopped == "inside" else "has not called MPI_Init"
    assert f"tarantella: rank 1 did not join within 10 s: {why}" in result.stderr, result.said


def test_transports_that_differ_are_refused(tmp_path: Path):
    source = """
        import os
        os.environ["TNT_TRANSPORT"] = ["shm", "mpi"][int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))]
        import tarantella as tnt
        tnt.barrier()
        """
    result = mpirun(2, _script(tmp_path, source), timeout=30)
    assert result.code != 0
    assert "rank 1 has TNT_TRANSPORT=mpi, rank 0 has shm: set it alike on all ranks" in result.stderr, result.said


def test_a_transport_that_nobody_started_is_refused(tmp_path: Path):
    result = run_alone("import tarantella as tnt\ntnt.get_rank()", env={"TNT_TRANSPORT": "mpi"})
    assert "TNT_TRANSPORT=mpi: this process was not started by mpirun or srun" in result.stderr, result.said


@pytest.mark.parametrize("first", ["program", "tarantella"])
def test_alongside_mpi4py(tmp_path: Path, first: str):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    source = f"""
        import tarantella as tnt
        if "{first}" == "tarantella":
            tnt.barrier()
        from mpi4py import MPI
        assert MPI.COMM_WORLD.allreduce(tnt.get_rank()) == 1 == tnt.all_reduce(tnt.get_rank())
        """
    result = mpirun(2, _script(tmp_path, source), timeout=30, env={"TNT_TRANSPORT": "mpi"})
    assert result.code == 0, result.said
