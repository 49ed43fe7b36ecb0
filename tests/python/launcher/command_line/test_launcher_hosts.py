"""Jobs on several hosts: the hosts that are named, the command that mpirun gets, and what it starts. No library is needed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, all_here, assign_ranks, describe, read_hostfile, read_hosts
from tarantella.launcher.start.own_program import START
from tarantella.launcher.start.pinning import find_shares, find_sockets

EXPECTED = "`name`, `name slots=2` or `name:2`"
RANK = 'rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])\n'
STARTERS = [name for name in ("mpirun.openmpi", "mpirun.mpich") if shutil.which(name)] or (
    ["mpirun"] if shutil.which("mpirun") else []
)
with_mpirun = pytest.mark.parametrize(
    "mpirun", STARTERS or [pytest.param("", marks=pytest.mark.skip(reason="no mpirun on this machine"))]
)


@pytest.fixture(autouse=True)
def more_ranks_than_cores(monkeypatch):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.delenv(name, raising=False)  # the launcher sees to it
    monkeypatch.setenv("HYDRA_LAUNCHER", "fork")


def hostfile(folder: Path, text: str) -> str:
    path = folder / "hosts"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a\n", [("a", 1)]),
        ("# the cluster\n\n  a slots=2  # old\nb:3\n", [("a", 2), ("b", 3)]),
        ("a slots = 2\n\tb\tslots= 4", [("a", 2), ("b", 4)]),
        ("a\nb\na:2\n", [("a", 3), ("b", 1)]),
        ("node-1.lan:2\r\n10.0.0.2 slots=2\r\n", [("node-1.lan", 2), ("10.0.0.2", 2)]),
    ],
)
def test_hostfile(tmp_path, text, hosts):
    assert read_hostfile(hostfile(tmp_path, text)) == tuple(Host(*host) for host in hosts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n\nb c\n", f"FILE:3: unexpected 'c': write a host as {EXPECTED}"),
        ("a max_slots=3", f"FILE:1: unexpected 'max_slots=3': write a host as {EXPECTED}"),
        ("a slots=two", f"FILE:1: unexpected 'slots=two': write a host as {EXPECTED}"),
        ("a slots=-1", f"FILE:1: unexpected 'slots=-1': write a host as {EXPECTED}"),
        ("slots=2", f"FILE:1: 'slots=2' is no host: write {EXPECTED}"),
        ("a:b", f"FILE:1: 'a:b' is no host: write {EXPECTED}"),
        ("-oProxyCommand=x", f"FILE:1: '-oProxyCommand=x' is no host: write {EXPECTED}"),
        ("fe80::1", f"FILE:1: 'fe80::1' is no host: write {EXPECTED}"),
        ("a:0", "FILE:1: 'a' with 0 ranks: leave it out"),
        ("a:2 slots=2", "FILE:1: 'a' is given its number of ranks twice"),
        ("# nothing\n\n", "--hostfile: 'FILE' names no host"),
    ],
)
def test_nonsense_is_refused_with_its_line(tmp_path, text, message):
    path = hostfile(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        read_hostfile(path)
    assert str(refused.value).replace(path, "FILE") == message


def test_a_list_of_hosts():
    assert read_hosts("a:2,b, a") == (Host("a", 3), Host("b", 1))


def test_the_first_hosts_are_filled_first():
    hosts = (Host("a", 2), Host("b", 2), Host("c", 2))
    assert assign_ranks(hosts, 3) == (Host("a", 2), Host("b", 1))
    assert assign_ranks(hosts, 6) == hosts


def test_this_host_by_its_names():
    assert all_here([Host("localhost", 2), Host(socket.gethostname(), 1)])
    assert not all_here([Host("localhost", 2), Host("elsewhere", 1)])


def test_of_many_hosts_the_first_are_named():
    hosts = [Host(f"n{number}", 2) for number in range(6)]
    assert describe(hosts) == "12 ranks on 6 hosts (n0: 2, n1: 2, n2: 2, n3: 2, ...)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hostfile none -- rank.py", "--hostfile: cannot read 'none': No such file or directory"),
        ("--hosts a --hostfile hosts -- rank.py", "--hostfile and --hosts: give one of them"),
        ("-n 5 --hostfile hosts -- rank.py", "-n: 5 ranks, but the hosts take 4: give them more slots, or start fewer ranks"),
        ("--hosts a,,b -- rank.py", f"--hosts: '' is no host: write {EXPECTED}"),
        ("--hosts a:5000 -- rank.py", "the hosts take 5000 ranks, and a job has at most 4096: say with -n how many to start"),
        ("-n 2 --mpirun mpirun -- rank.py", "--mpirun: give the hosts to start ranks on, too, with --hostfile or --hosts"),
        ("--hosts a --mpirun= -- rank.py", "--mpirun: must be a command, not an empty one"),
        (
            "--hosts a --mpirun ./none -- rank.py",
            "'./none' is not a program that can be run, and ranks on several hosts are started by mpirun: install Open MPI "
            "(on Debian, openmpi-bin), or name another one with --mpirun",
        ),
        (
            "--hosts a --mpirun ./mute -- rank.py",
            "'./mute' is neither Open MPI's nor MPICH's mpirun: asked for its version it says 'I am mute'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(here, words, message):
    here.script("mark('started')")
    hostfile(here.folder, "a slots=2\nb slots=2\n")
    fake(here, "mute", "I am mute")
    result = here.run(*words.split())
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"tarantella: {message}\n")


def fake(here, name: str, version: str) -> None:
    """A program that says this version."""
    path = here.folder / name
    path.write_text(f"#!/bin/sh\necho {shlex.quote(version)}\n")
    path.chmod(0o755)


def shown(here, version: str, *words: str) -> tuple[list[str], list[str], str]:
    """What would be started: the variables, the command, and the line that says so."""
    fake(here, "mpirun", version)
    here.script("mark('started')")
    result = here.run(*words, "--mpirun", "./mpirun --own 1", "--dry-run", "--", "rank.py", "two words")
    assert result.returncode == 0, result.stderr
    line = shlex.split(result.stdout)
    at = line.index("./mpirun")
    return line[:at], line[at:], result.stderr


WATCHED = [sys.executable, START, "tarantella.launcher.watch.mpi_rank"]
COMMAND = ["--", sys.executable, "rank.py", "two words"]


def test_the_command_of_open_mpi(here, monkeypatch):
    monkeypatch.setenv("TNT_TIMELINE", "trace.json")
    hostfile(here.folder, "a slots=2\nb slots=2\n")
    options = ["--timeout", "7", "--log-level", "info", "--fusion-threshold", "32", "-x", "A=1 2", "--output-on-all-devices"]
    variables, command, line = shown(here, "mpirun (Open MPI) 4.1.4", "-n", "3", "--hostfile", "hosts", *options)
    assert {"A=1 2", "TNT_TIMEOUT=7", "TNT_LOG_LEVEL=info", "TNT_FUSION_THRESHOLD=32"} <= set(variables)
    assert line == "tarantella: 3 ranks on 2 hosts (a: 2, b: 1), started by Open MPI's mpirun\n"
    start = ["./mpirun", "--own", "1"] + ["--allow-run-as-root"] * (os.geteuid() == 0)
    start += ["--host", "a:2,b:1", "-n", "3", "--map-by", "slot", "--bind-to", "none", "--wdir", str(here.folder)]
    assert command[: len(start)] == start
    assert command[-len(WATCHED + COMMAND) - 3 :] == [*WATCHED, "--output-on-all-devices", "--ranks=3", "--joining=3", *COMMAND]
    passed_on = command[len(start) : -len(WATCHED + COMMAND) - 3]
    assert set(passed_on[::2]) == {"-x"}
    assert {
        "A",
        "PATH",
        "TNT_FUSION_THRESHOLD",
        "TNT_LOG_LEVEL",
        "TNT_ON_ALL_RANKS",
        "TNT_TIMELINE",
        "TNT_TIMEOUT",
        "PYTHONUNBUFFERED",
        "TF_CPP_MIN_LOG_LEVEL",
    } <= set(passed_on[1::2])
    assert not (here.folder / "started").exists()


def test_so_many_ranks_on_each_host(here):
    hostfile(here.folder, "a slots=5\nb\na\n")
    _, command, line = shown(here, "mpirun (Open MPI) 4.1.4", "--hostfile", "hosts", "--npernode", "2", "--pin-to-socket")
    assert line == "tarantella: 4 ranks on 2 hosts (a: 2, b: 2), started by Open MPI's mpirun\n"
    assert command[-len(COMMAND) - 3 :] == ["--pin-to-socket", "--ranks=4", "--joining=4", *COMMAND]
    _, command, _ = shown(here, "mpirun (Open MPI) 4.1.4", "--hostfile", "hosts", "--pin-to-socket", "--pin-memory-to-socket")
    assert command[-len(COMMAND) - 4 :] == [WATCHED[-1], "--pin-memory-to-socket", "--ranks=7", "--joining=7", *COMMAND]


def test_the_command_of_mpich(here):
    variables, command, line = shown(here, "HYDRA build details:", "--hosts", "a:2,b:2", "--log-on-all-devices")
    assert "TNT_ON_ALL_RANKS=log" in variables
    assert line == "tarantella: 4 ranks on 2 hosts (a: 2, b: 2), started by MPICH's mpirun\n"
    start = ["./mpirun", "--own", "1", "-hosts", "a:2,b:2", "-n", "4", "-bind-to", "none", "-wdir", str(here.folder)]
    assert command == [*start, *WATCHED, "--log-on-all-devices", "--ranks=4", "--joining=4", *COMMAND]


def test_hosts_that_are_this_one_need_no_mpi(here):
    hostfile(here.folder, "localhost slots=2\n")
    result = here.run("--hostfile", "hosts", "--", here.script("print(os.environ['TNT_SIZE'])"))
    assert (result.returncode, result.stdout) == (0, "2\n"), result.stderr


def by_mpirun(here, mpirun: str, body: str, *options: str) -> list[object]:
    """The words for two ranks on this host that mpirun starts."""
    hostfile(here.folder, "localhost slots=2\n")
    path = here.script("", "by_mpirun.py")
    path.write_text(path.read_text().replace('rank = int(os.environ["TNT_RANK"])\n', RANK) + body)
    return ["-n", 2, "--hostfile", "hosts", "--mpirun", mpirun, *options, "--", path, "a b"]


@with_mpirun
def test_rank_0_alone_is_heard_and_finds_what_it_was_given(here, mpirun):
    body = "print(rank, os.environ['A'], os.environ['TNT_TIMEOUT'], sys.argv[1:], os.getcwd())"
    result = here.run(*by_mpirun(here, mpirun, body, "-x", "A=1 2", "--timeout", "7"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"0 1 2 7 ['a b'] {here.folder}"]
    assert result.stderr.startswith("tarantella: 2 ranks on 1 host (localhost: 2), started by ")


@with_mpirun
def test_ranks_are_bound_to_sockets(here, mpirun):
    result = here.run(*by_mpirun(here, mpirun, "print(sorted(os.sched_getaffinity(0)))", "--pin-to-socket"))
    if Path("/sys/devices/system/node/node0").exists():
        assert (result.returncode, result.stdout) == (0, f"{sorted(find_sockets()[0].cores)}\n"), result.stderr
    else:
        assert result.returncode != 0
        assert "--pin-to-socket: this machine does not tell its sockets" in result.stderr


@with_mpirun
@pytest.mark.parametrize("option", ["--pin-to-cores", "--no-gpu"])
def test_ranks_are_bound_to_cores(here, mpirun, option):
    """By default, too."""
    result = here.run(*by_mpirun(here, mpirun, "print(sorted(os.sched_getaffinity(0)))", option))
    assert (result.returncode, result.stdout) == (0, f"{sorted(find_shares(2)[0].cores)}\n"), result.stderr


@with_mpirun
def test_hosts_are_cleaned_up(here, mpirun):
    result = here.run("--hosts", "localhost", "--mpirun", mpirun, "--cleanup", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("tarantella: ") and f" on {socket.gethostname()}" in result.stderr


@with_mpirun
def test_on_request_every_rank_is_heard_with_its_name(here, mpirun):
    result = here.run(*by_mpirun(here, mpirun, "print('out', rank)", "--output-on-all-devices"))
    assert sorted(result.stdout.splitlines()) == ["[rank 0] out 0", "[rank 1] out 1"], result.stderr


@with_mpirun
def test_the_training_goes_on_where_nothing_can_be_written(here, mpirun):
    body = "[print('z' * 1000) for _ in range(200)]; mark(f'done{rank}')"
    with open("/dev/full", "wb") as device:
        result = here.run(*by_mpirun(here, mpirun, body), stdout=device)
    assert result.returncode == 1
    assert here.read("done0") == here.read("done1") == ""
    assert "tarantella: cannot write to standard output: No space left on device; " in result.stderr


@with_mpirun
def test_a_rank_that_fails_is_named_and_ends_the_others(here, gone, mpirun):
    body = """
if rank: wait_for("pid0"); print("its last words", file=sys.stderr); sys.exit(7)
mark("pid0", os.getpid()); time.sleep(60)
"""
    result = here.run(*by_mpirun(here, mpirun, body))
    assert result.returncode != 0 and (result.returncode == 7 or "mpich" in mpirun)
    assert "[rank 1] its last words\n" in result.stderr
    assert f" on {socket.gethostname()}) exited with code 7" in result.stderr
    gone(here.pids("pid0"), within=10)


@with_mpirun
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(here, gone, mpirun, sent):
    launcher = here.start(*by_mpirun(here, mpirun, "mark(f'pid{rank}', os.getpid()); time.sleep(60)"))
    pids = here.pids("pid0", "pid1")
    launcher.send_signal(sent)
    assert launcher.wait(timeout=20) == (-9 if sent == signal.SIGKILL else 128 + sent)
    gone(pids, within=5)


@with_mpirun
def test_ranks_that_handle_sigterm_have_time_to_save(here, mpirun):
    body = """
def save(*_): time.sleep(3 + rank); mark(f"saved{rank}"); sys.exit(0)
signal.signal(signal.SIGTERM, save)
mark(f"pid{rank}", os.getpid()); time.sleep(60)
"""
    launcher = here.start(*by_mpirun(here, mpirun, body))
    here.pids("pid0", "pid1")
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert {path.name for path in here.folder.glob("saved*")} == {"saved0", "saved1"}, err


def test_an_mpirun_that_does_not_end_after_a_failure_is_ended(here, gone):
    path = here.folder / "mpirun"
    path.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'\n"
        "echo $$ > pid.part; mv pid.part pid\n"
        "echo 'tarantella: rank 1 (pid 5 on b) exited with code 1' >&2\ntrap '' TERM\nwhile :; do sleep 1; done\n"
    )
    path.chmod(0o755)
    started = time.monotonic()
    result = here.run("--hosts", "a,b", "--mpirun", "./mpirun", "--", here.script(""))
    assert time.monotonic() - started > 7
    assert result.returncode == 1
    assert result.stderr.splitlines()[1] == "tarantella: rank 1 (pid 5 on b) exited with code 1"
    assert result.stderr.splitlines()[2].startswith("tarantella: mpirun has not ended within 8 s and is killed; ")
    gone(here.pids("pid"), within=10)


HANGS = """\
#!/bin/sh
[ $1 = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'
echo $$ > pid.part; mv pid.part pid
trap '' TERM
"""
STARTS_TWO = """\
while [ $1 != {python} ]; do shift; done
for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank "$@" & done
wait
printf 'its last words, \\036, without an end' >&2
"""


@pytest.mark.parametrize(
    ("body", "options", "code", "said"),
    [
        (STARTS_TWO, (), 0, "tarantella: all ranks have ended well, but mpirun has not within 8 s and is killed"),
        ("", ("--timeout", "1"), 1, ": 2 ranks, the first is 0, were not started by mpirun within 1 s (TNT_TIMEOUT), and"),
    ],
    ids=["when all have ended", "before it starts any"],
)
def test_an_mpirun_that_hangs_is_ended(here, gone, body, options, code, said):
    path = here.folder / "mpirun"
    path.write_text(HANGS + body.format(python=sys.executable) + "while :; do sleep 1; done\n")
    path.chmod(0o755)
    script = here.folder / "train.py"
    script.write_text("print('trained')\n")
    result = here.run("--hosts", "a,b", "--mpirun", "./mpirun", *options, "--", script)
    assert (result.returncode, result.stdout) == (code, "trained\n" if body else ""), result.stderr
    assert said in result.stderr and "tarantella rank" not in result.stderr, result.stderr
    assert not body or ("its last words, " in result.stderr and result.stderr.endswith("\x1e, without an end")), result.stderr
    gone(here.pids("pid"), within=10)


def test_all_that_mpirun_says_arrives(here):
    path = here.folder / "mpirun"
    path.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'\n"
        "i=0; while [ $i -lt 3000 ]; do echo $i tarantella: rank 1 is what the script says >&2; i=$((i+1)); done; exit 3\n"
    )
    path.chmod(0o755)
    result = here.run("--hosts", "a,b", "--mpirun", "./mpirun", "--", here.script(""))
    assert result.returncode == 3
    said = [f"{number} tarantella: rank 1 is what the script says" for number in range(3000)]
    assert result.stderr.splitlines()[1:-1] == said
    assert result.stderr.splitlines()[-1].startswith("tarantella: mpirun has started no rank (it returned 3)")


@pytest.mark.skipif(not shutil.which("mpirun.openmpi"), reason="needs Open MPI")
def test_hosts_that_cannot_be_reached_end_with_one_line_of_ours(here):
    mpirun = "mpirun.openmpi"
    result = here.run("--hosts", "no-such-host.invalid", "--mpirun", mpirun, "--", here.script("", "by_mpirun.py"))
    assert result.returncode != 0
    last = result.stderr.splitlines()[-1]
    assert last.startswith("tarantella: mpirun has started no rank (it returned ") and "without a password" in last, (
        result.stderr
    )
