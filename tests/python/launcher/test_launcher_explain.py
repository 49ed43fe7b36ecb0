"""`--flight-recorder FOLDER` and `tarantella explain FOLDER`: the records of a job that has failed, and what they say."""

from __future__ import annotations

import json
import resource

import pytest

PREPARED = """
    import numpy as np
    import tarantella as tnt
    for _ in range(16):
        tnt.all_reduce(np.zeros(10))
    """


def failed_job(here, body, *options):
    result = here.ranks(3, PREPARED + body, "--timeout", 60, "--flight-recorder", "records", *options)
    assert result.returncode != 0
    folder = here.folder / "records"
    note = f"tarantella: flight records are in {folder}: `tarantella explain {folder}` tells what they say"
    assert result.stderr.splitlines()[-1] == note
    return result


def explained(here, *words):
    result = here.run("explain", "records", *words)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_record_of_a_killed_rank(here):
    failed_job(here, """
    if rank == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    tnt.all_reduce(np.zeros(4096, np.float32))
    """)  # fmt: skip
    lines = explained(here, "--calls", "2")
    assert lines[0].startswith("The job of 3 ranks ended: rank 1 (pid ") and lines[0].endswith(" was killed by SIGKILL.")
    call = "call 17 of the communicator of all ranks (shm)"
    assert lines[1].startswith("Ranks 0 and 2 (")
    assert lines[1].endswith(f" waited in {call}, all_reduce sum of 4096 float32, for rank 1.")
    last = "call 16 of the communicator of all ranks (shm), all_reduce sum of 10 float64"
    assert lines[2] == f"Rank 1 was in no call; the last one was {last}."
    verdict = f"So rank 1 fell out of step: others waited in {call}, and it had come to call 16, all_reduce sum of 10 float64."
    assert lines[3] == f"{verdict} It was killed by SIGKILL."
    assert [line for line in lines if line.endswith("has not ended")] == [lines[6], lines[12]]
    told = json.loads(here.run("explain", "records", "--json").stdout)
    assert [one["ended"] for one in told["ranks"]][1] == "was killed by SIGKILL"
    assert [len(one["record"]["lanes"][0]["calls"]) for one in told["ranks"]] == [17, 16, 17]

    # what is missing, damaged, or of another job is said
    (here.folder / "records" / "rank-2.json").unlink()
    (here.folder / "records" / "rank-0.flight").write_bytes(b"x" * 100)
    lines = explained(here)
    assert lines[1].startswith("Note: the record of rank 0 cannot be read: it has 100 bytes")
    assert lines[2] == "Note: there is no record of rank 2: look for the folder on the other hosts of the job."
    other = json.loads((here.folder / "records" / "rank-0.json").read_text())
    (here.folder / "records" / "rank-0.json").write_text(json.dumps({**other, "job": "earlier", "written": 1.0}))
    assert "Note: the records of rank 0 are of an earlier job and left out." in explained(here)
    for nonsense in ("[" * 100_000, "{}", json.dumps({**other, "rank": "x"}), json.dumps({**other, "ranks": 10**12})):
        (here.folder / "records" / "rank-1.json").write_text(nonsense)
        (here.folder / "records" / "rank-0.json").unlink(missing_ok=True)
        refused = here.run("explain", "records")
        assert refused.returncode == 1
        assert "records' has no flight records: rank-1.json cannot be read" in refused.stderr, refused.stderr


def test_ranks_in_different_calls(here):
    failed_job(here, "tnt.all_reduce(np.zeros(10, np.float32)) if rank == 1 else tnt.all_reduce(np.zeros(4096))")
    different = next(line for line in explained(here) if line.startswith("The ranks made different calls"))
    assert different == (
        "The ranks made different calls: as call 17 of the communicator of all ranks (shm), rank 1 made all_reduce sum of 10 "
        "float32; ranks 0 and 2 made all_reduce sum of 4096 float64."
    )


@pytest.mark.parametrize(
    ("folder", "code", "said"), [("none", 2, "'none' is not a folder"), (".", 1, "'.' has no flight records")]
)
def test_a_folder_without_records(here, folder, code, said):
    result = here.run("explain", folder)
    assert result.returncode == code
    assert said in result.stderr
    assert here.run("explain").returncode == 2


def test_a_folder_that_cannot_be_written_to_is_said(here):
    (here.folder / "file").write_text("")
    assert here.ranks(1, "", "--flight-recorder", "file").stderr.startswith("tarantella: --flight-recorder: must name a folder")
    result = here.ranks(1, "Path('gone').write_text(''); sys.exit(3)", "--flight-recorder", "gone")
    assert result.returncode == 3
    assert "tarantella: --flight-recorder: cannot write to " in result.stderr


def test_a_rank_that_could_have_no_record_is_named(here):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))

    result = here.ranks(2, "sys.exit(3)", "--flight-recorder", "records", preexec_fn=little_room)
    assert result.returncode == 3
    for rank in range(2):
        said = f"rank {rank} has no flight record: the system refused the memory for it, as under a limit on file sizes"
        assert said in result.stderr
