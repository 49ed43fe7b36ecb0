"""Horovod's collectives, imported under Horovod's name, against NumPy."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS
from support.mpirun import needs_mpirun


@pytest.fixture(scope="module", params=[2, 4])
def found(request):
    script = RANKS / "horovod/horovod_collectives.py"
    return request.param, Findings(request.param, script, launcher_options=["--horovod"])


@needs_mpirun
def test_under_mpirun():
    """Which starts plain Python: the environment asks for the name."""
    script, only = RANKS / "horovod/horovod_collectives.py", ["names", "by_rows"]
    found = Findings(2, script, mpi=True, env={"TNT_HOROVOD": "1"}, only=only)
    assert all(all(on_rank.values()) for on_rank in found["by_rows"]) and all(all(on_rank) for on_rank in found["names"])


@pytest.mark.parametrize("what", ["reductions", "by_rows", "gradients"])
def test_results(found, what):
    for on_rank in found[1][what]:
        assert all(on_rank.values()), on_rank


def test_the_name_is_ours(found):
    assert all(all(on_rank) for on_rank in found[1]["names"])


def test_threads_call_in_any_order(found):
    for on_rank in found[1]["orders"]:
        assert all(on_rank["named"]) and on_rank["unnamed"] and on_rank["one_by_one"] == [[1.0, 2.0]] * 5, on_rank


def test_a_name_used_twice_at_once(found):
    *others, last = found[1]["same_name"]
    assert not any(others)
    assert last == [
        "WrongArgumentError",
        "hvd.allreduce of 'twice': another thread of this rank has not finished a call with this name: give each its own",
    ]


def test_calls_that_never_meet(found):
    waits = [f"rank {rank} waits in allreduce of '{'odd' if rank % 2 else 'even'}'" for rank in range(found[0])]
    for kind, text in found[1]["never_together"]:
        assert kind == "HorovodInternalError" and f"for 1 s (TNT_TIMEOUT): {'; '.join(waits)}. All ranks" in text


def test_objects(found):
    for rank, (number, array, gathered, refused) in enumerate(found[1]["objects"]):
        assert [number, array, gathered] == [1, [0, 1, 2], True]
        assert refused[0] == ("TypeError" if rank == 0 else "HorovodInternalError")
        assert "cannot send a set" in refused[1] and "TNT_HOROVOD_PICKLE=1" in refused[1]


def test_process_sets(found):
    for rank, (results, twice, removed, after) in enumerate(found[1]["process_sets"]):
        if rank % 2 == 0:
            assert all(results), results
        else:
            assert results[0] == "WrongArgumentError" and f"rank {rank} is not in Group" in results[1]
        assert [twice, removed, after] == ["ValueError", True, "ValueError"]


def test_a_timeline(found):
    size, findings = found
    for twice, ranks in findings["timeline"]:
        assert twice[0] == "InvalidArgumentError" and "timeline.json: stop that one first" in twice[1]
        assert ranks == list(range(size))


def test_ranks_that_have_joined(found):
    size, findings = found
    for sums, wrong, last in findings["join"]:
        assert sums and last == size - 1
        assert wrong[0] == "CallsDifferError" and wrong[1].startswith(
            f"rank 0 has joined while rank {size - 1} calls all_gather"
        )


def test_what_is_refused(found):
    size, findings = found
    for loss, dtype, root, no_root, splits, group, adasum, both, *others in findings["refused"]:
        assert loss == [
            "CallsDifferError",
            "rank 1 calls all_reduce with op avg of 'loss', a float32 tensor of shape [2, 3] while rank 0 calls all_reduce "
            "with op avg of 'loss', a float32 tensor of shape [3, 2]: all ranks must make the same calls in the same order",
        ]
        assert dtype[0] == root[0] == "CallsDifferError" and "a int32 tensor" in dtype[1] and "from root 1" in root[1]
        assert no_root[0] == splits[0] == "WrongArgumentError" and f"rank {size} is not in" in no_root[1]
        assert group[0] == "CallsDifferError" and "'two: 2 tensors of shapes with the hash " in group[1]
        assert adasum[0] == "UnsupportedError" and both[0] == "ValueError"
        assert others == [True, True, "ModuleNotFoundError", 1.0]
