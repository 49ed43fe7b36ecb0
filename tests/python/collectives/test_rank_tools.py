"""Groups, Allreduce, Broadcast, Allgatherv, Barrier, broadcast_object, settings: results, misuse, and ranks that differ."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS, run_ranks

SIZE = 3
SETTINGS = {
    "TNT_GPUS_PER_NODE": "2",
    "TNT_LOG_LEVEL": "warn",
    "TNT_ON_ALL_RANKS": "log,tensorboard",
    "TNT_FUSION_THRESHOLD": "0.5M",
}


@pytest.fixture(scope="module")
def found():
    return Findings(
        SIZE, RANKS / "collectives/rank_tools.py", env={"TNT_TIMEOUT": "60", **SETTINGS}, forked=False
    )  # without TensorFlow


def test_groups(found):
    outside = ["InvalidArgumentError", "rank 1 is not in Group([2, 0]): only its members take part in what is done on it"]
    for rank, group in enumerate(found["groups"]):
        assert group == [
            [[0, 1, 2], SIZE, rank, rank],
            [[2, 0], 2, rank, 2, 1],
            [True, False, False],
            [False, True, False, True, False],
            {0: 1, 1: outside, 2: 0}[rank],
            [True, 2, "Group([2, 0])"],
            [2, rank == 2, rank == 0],
        ]


def test_a_guard_makes_what_an_object_takes_again_as_a_whole(found):
    assert found["an_object_is_one_collective_for_a_guard"] == [[[{"rank": 1}, 2], 2]] * SIZE


def test_groups_that_cannot_be(found):
    for none, twice, beyond, negative, text, rank, member in found["groups_that_cannot_be"]:
        assert none == ["InvalidArgumentError", "Group([]): name each rank of the group once"]
        assert twice == ["InvalidArgumentError", "Group([0, 0]): name each rank of the group once"]
        assert beyond == ["InvalidArgumentError", "Group([0, 3]): the job has ranks 0 to 2, and no 3"]
        assert negative == ["InvalidArgumentError", "Group([-1]): the job has ranks 0 to 2, and no -1"]
        assert text[0] == "TypeError"
        assert rank == ["InvalidArgumentError", "Group([2, 0]) has ranks 0 to 1, and no 2"]
        assert member[1].startswith("rank 1 is not in Group([2, 0]): ")


def test_who_is_no_member_takes_no_part(found):
    for rank, errors in enumerate(found["who_is_no_member_takes_no_part"]):
        for error in errors:
            assert error[0] == "InvalidArgumentError"
            assert error[1].startswith(f"rank {rank} is not in Group([{(rank + 1) % SIZE}]): ")


def test_results_are_numpys(found):
    assert found["reductions"] == [[]] * SIZE
    assert found["large_unsigned_numbers"] == [[[2**63, 0, 2**64 - 1], [2**63 + 2, 2, 2**64 - 1]]] * SIZE
    assert all(map(all, found["broadcasts_and_gathers"]))


def test_start_does_not_wait(found):
    assert found["start_does_not_wait"] == [[True, True, True, SIZE, [3.0, 3.0, 6.0, 9.0]]] * SIZE


def test_what_is_dropped_harms_nobody(found):
    assert found["dropped_without_waiting"] == [True] * SIZE


def test_misuse(found):
    for early, few, fractions, twice, negative, op, root, order, objects in found["misuse"]:
        assert early == ["InvalidArgumentError", "Allreduce: nothing was started: call start first"]
        assert few == ["InvalidArgumentError", "Allreduce is for 2 elements: it was given 1"]
        assert fractions[0] == "UFuncTypeError" or fractions[0] == "TypeError"
        assert twice == ["InvalidArgumentError", "Allreduce was started already: call wait_for_completion first"]
        assert negative == ["InvalidArgumentError", "nelems is -1: use 0 or more"]
        assert op == ["ValueError", "'mean' is not a valid ReductionOp"]
        assert root == ["InvalidArgumentError", "Group([0, 1, 2]) has ranks 0 to 2, and no 3"]
        assert order[1].startswith("cannot take the MAX of elements of type complex128: ")
        assert objects == ["TypeError", "cannot send Python objects: use a type of numbers"]


def test_ranks_that_differ_are_told_where(found):
    for rank, (count, op, dtype, root, in_group) in enumerate(found["what_differs_is_named"]):
        text = "{}: rank 2 has {}; rank 0 has {}. Give it the same on all ranks".format
        assert count == ["MismatchError", text("Allreduce", "3 elements", "2 elements")]
        assert op == ["MismatchError", text("Allreduce", "operation MAX", "operation SUM")]
        assert dtype == ["MismatchError", text("Allreduce", "elements of type float64", "elements of type float32")]
        assert root == ["MismatchError", text("Broadcast", "root 1", "root 0")]
        if rank != 1:
            assert in_group[1] == "Allreduce: rank 0 has 2 elements; rank 2 has 3 elements. Give it the same on all ranks"


def test_objects(found):
    assert all(map(all, found["objects"]))


def test_objects_that_cannot_be_sent(found):
    for rank, (*errors, root) in enumerate(found["objects_that_cannot_be_sent"]):
        for error, what in zip(errors, ("a set", "a bytes", "a function", "an array of object", "an array of"), strict=True):
            text = f"tnt.broadcast_object: cannot send {what}"
            assert error[0] == ("TypeError" if rank == 1 else "TarantellaError")
            assert error[1].startswith(text if rank == 1 else f"rank 1 failed: TypeError: {text}")
        assert root == ["InvalidArgumentError", "root is 3: the job has ranks 0 to 2"]


def test_settings(found):
    shown = "gpus_per_node=2, log_level='WARNING', log_on_all_devices=True, output_on_all_devices=False, "
    shown += "tensorboard_on_all_devices=True, fusion_threshold=524288.0"
    values = [2, "WARNING", True, False, True, 524288.0, f"Configuration({shown})", "AttributeError", True]
    assert found["settings"] == [values] * SIZE


def test_tensorflow_is_not_needed(found):
    assert all(found["tensorflow_was_not_needed"])


@pytest.mark.parametrize("group", ["tnt.Group()", "tnt.Group([1, 0])"])
def test_who_does_not_come_is_named(tmp_path, group):
    source = f"""
        import time
        import tarantella as tnt
        made = tnt.Allreduce({group}, 4)
        if tnt.get_rank() == 0:
            made.start([0, 1, 2, 3])
            made.wait_for_completion()
        else:
            time.sleep(60)
        """
    result = run_ranks(2, source, timeout=20, env={"TNT_TIMEOUT": "1"})
    assert result.code != 0
    assert not result.left_behind
    assert "DeadlineError" in result.stderr and "rank 1" in result.stderr, result.said


@pytest.mark.parametrize("end", ["del made; gc.collect()", "pass", "sys.keep = made"])
@pytest.mark.parametrize("group", ["tnt.Group()", "tnt.Group([1, 0])"])
def test_who_leaves_waits_for_nobody(group, end):
    source = f"""
        import gc, sys
        import numpy as np
        import tarantella as tnt
        made = tnt.Allreduce({group}, 100_000)
        if tnt.get_rank() == 0:
            made.start(np.ones(100_000))
            {end}
        print("done")
        """
    assert run_ranks(2, source, timeout=20, env={"TNT_TIMEOUT": "10"}).good().stdout == "done\n"


def test_waiting_can_be_interrupted(tmp_path):
    """The other rank comes after that: what waited has not been done."""
    source = """
        import os, pathlib, signal, sys, threading, time
        import tarantella as tnt
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in whatever a shell has started with &
        interrupted = pathlib.Path(sys.argv[1])
        made = tnt.Allreduce(tnt.Group(), 4)

        def interrupt(waiting):
            def calls(frame):
                return [] if frame is None else [frame.f_code.co_name, *calls(frame.f_back)]
            while "wait_for_completion" not in calls(sys._current_frames()[waiting]):
                time.sleep(0.01)
            time.sleep(0.3)  # into the library
            os.kill(os.getpid(), signal.SIGINT)

        if tnt.get_rank() == 0:
            threading.Thread(target=interrupt, args=(threading.get_ident(),)).start()
        try:
            while tnt.get_rank() == 1 and not interrupted.exists():
                time.sleep(0.01)
            made.start([0, 1, 2, 3])
            made.wait_for_completion()
        except (KeyboardInterrupt, tnt.AbortedError) as error:
            interrupted.touch()
            assert isinstance(error, KeyboardInterrupt) or str(error) == "rank 0: interrupted", error
            print(type(error).__name__)
        """
    options = ["--output-on-all-devices"]
    result = run_ranks(2, source, tmp_path / "interrupted", timeout=20, launcher_options=options).good()
    assert sorted(result.stdout.splitlines()) == ["[rank 0] KeyboardInterrupt", "[rank 1] AbortedError"]
