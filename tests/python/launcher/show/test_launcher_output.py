"""What is shown of the ranks' output, and that showing it holds up nobody."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import time

import pytest

from tarantella.launcher.show.output import MAX_LINE, LineSplitter


def test_by_default_rank_0_alone_is_heard(here):
    result = here.ranks(3, "print('out', rank); print('err', rank, file=sys.stderr)")
    assert result.stdout == "out 0\n"
    assert result.stderr.splitlines()[1:] == ["err 0"]


def test_rank_0_has_a_terminal_like_the_launchers(here):
    """Progress bars arrive as they are written, with the width that they ask for."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    body = """
        mark(f'tty{rank}', (sys.stdout.isatty(), sys.stderr.isatty()))
        if rank == 0:
            mark('width', os.get_terminal_size().columns)
            for number in range(3): sys.stdout.write(f"\\r{number}/3"); sys.stdout.flush()
            print()
        """
    try:
        result = here.ranks(2, body, stdout=theirs)
        shown = os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert result.returncode == 0
    assert (here.read("tty0"), here.read("tty1")) == ("(True, False)", "(False, False)")
    assert (here.read("width"), shown) == ("77", b"\r0/3\r1/3\r2/3\r\n")


def test_the_job_outlives_its_terminal(here):
    """As after `disown`: nobody tells the launcher."""
    ours, theirs = pty.openpty()
    body = "print('begun', flush=True); wait_for('closed'); [print(n, flush=True) for n in range(99)]; mark(f'end{rank}')"
    launcher = here.start("-n", 2, "--", here.script(body), stdout=theirs, start_new_session=True)
    os.close(theirs)
    with open(ours, "rb", closefd=False) as shown:
        assert shown.readline() == b"begun\r\n"
    os.close(ours)
    (here.folder / "closed").touch()
    assert launcher.wait(timeout=60) == 0
    assert here.read("end0") == here.read("end1") == ""


def test_output_and_errors_in_one_file_keep_their_order(here):
    with (here.folder / "log").open("w") as log:
        here.ranks(1, "for n in range(500): os.write(1 + n % 2, b'%d\\n' % n)", stdout=log, stderr=subprocess.STDOUT)
    assert here.read("log").splitlines()[1:] == [str(number) for number in range(500)]


def test_on_request_every_rank_is_heard_with_its_name(here):
    body = "print('out', rank); print('err', rank, file=sys.stderr); sys.stdout.write('no end')"
    result = here.ranks(2, body, "--output-on-all-devices")
    expected = [f"[rank {rank}] {text}" for rank in range(2) for text in (f"out {rank}", "no end")]
    assert sorted(result.stdout.splitlines()) == sorted(expected)
    assert sorted(result.stderr.splitlines()[1:]) == ["[rank 0] err 0", "[rank 1] err 1"]
    assert result.stdout.endswith("\n")


def test_lines_of_ranks_never_mix(here):
    body = """
        for number in range(2000):  # in pieces, as an unbuffered print makes them
            os.write(1, b"%d:" % rank); os.write(1, b"%d" % rank * 100); os.write(1, b" %d\\n" % number)
        """
    result = here.ranks(4, body, "--output-on-all-devices")
    lines = result.stdout.splitlines()
    for rank in range(4):
        expected = [f"[rank {rank}] {rank}:{str(rank) * 100} {number}" for number in range(2000)]
        assert [line for line in lines if line.startswith(f"[rank {rank}]")] == expected
    assert len(lines) == 4 * 2000


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab", b"c"]),
        ([b"\n\n"], [b"", b""]),
        ([b"a\r\n", b"b\r", b"\n"], [b"a", b"b"]),
        ([b"1/3\r2/3\r", b"3/3\nnext\n"], [b"3/3", b"next"]),
        ([b"\r1/2", b"\r2/2", b"\n"], [b"2/2"]),
        ([b"1/2\r2/2\r"], [b"2/2"]),
        ([b"x" * (MAX_LINE + 1), b"y\n"], [b"x" * (MAX_LINE + 1), b"y"]),
    ],
)
def test_lines(pieces, lines):
    splitter = LineSplitter()
    found = [line for piece in pieces for line in splitter.feed(piece)]
    assert found + splitter.finish() == lines


def test_of_a_progress_bar_the_last_state_is_shown(here):
    body = """
        for number in range(100):
            sys.stdout.write(f"\\r{number + 1}/100"); sys.stdout.flush()
        print()
        """
    assert here.ranks(1, body, "--output-on-all-devices").stdout == "[rank 0] 100/100\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_that_nobody_sees_blocks_nobody(here, stream):
    result = here.ranks(2, f"print('x' * 4_000_000, file=sys.{stream}) if rank else print('done')")
    assert (result.returncode, result.stdout) == (0, "done\n")


def test_long_output_arrives_whole(here):
    result = here.ranks(2, "[print('y' * 999) for _ in range(5000)]", "--output-on-all-devices")
    assert result.stdout.count("y" * 999 + "\n") == 10_000


def test_an_unread_output_does_not_hide_a_failure(here, gone):
    body = """
        if rank == 0:
            mark("pid", os.getpid())
            while True: print("z" * 1000)
        wait_for("pid"); time.sleep(0.3); sys.exit(5)
        """
    launcher = here.start("-n", 2, "--output-on-all-devices", "--", here.script(body))
    gone(here.pids("pid"), within=10)  # though nothing has been read so far
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 5
    assert "exited with code 5" in err


def test_ranks_wait_for_a_slow_reader_and_lose_nothing(here):
    body = "mark('start'); [print('z' * 999) for _ in range(8000)]; mark('done')"
    launcher = here.start("-n", 1, "--output-on-all-devices", "--", here.script(body))
    here.read("start")
    time.sleep(0.5)
    assert not (here.folder / "done").exists()  # or the launcher had taken it all into its memory
    out, _ = launcher.communicate(timeout=20)
    assert out == f"[rank 0] {'z' * 999}\n" * 8000
    assert launcher.returncode == 0


@pytest.mark.parametrize("options", [[], ["--output-on-all-devices"]])
def test_the_job_outlives_its_reader(here, options):
    body = "[print('z' * 1000) for _ in range(1000)]; mark(f'done{rank}')"
    launcher = here.start("-n", 2, *options, "--", here.script(body))
    assert launcher.stdout is not None
    launcher.stdout.close()
    assert launcher.wait(timeout=20) == 0
    assert here.read("done0") == here.read("done1") == ""


@pytest.mark.parametrize("options", [[], ["--output-on-all-devices"]])
@pytest.mark.parametrize("full", ["stdout", "stderr"])
def test_output_to_a_full_device_is_an_error(here, full, options):
    body = "print('out'); print('err', file=sys.stderr); mark(f'done{rank}')"
    with open("/dev/full", "wb") as device:
        result = here.ranks(2, body, *options, **{full: device})
    assert result.returncode == 1
    assert here.read("done0") == here.read("done1") == ""  # the training went on
    if full == "stdout":
        lost = "cannot write to standard output: No space left on device; what was to come there from now on is lost"
        assert f"tarantella: {lost}" in result.stderr.splitlines()


def test_output_to_a_file(here):
    with (here.folder / "log").open("w") as log:
        result = here.ranks(2, "print(rank)", "--output-on-all-devices", stdout=log, stderr=subprocess.STDOUT)
    assert result.returncode == 0
    lines = here.read("log").splitlines()
    assert lines[0].startswith("tarantella: 2 ranks on ")
    assert sorted(lines[1:]) == ["[rank 0] 0", "[rank 1] 1"]


def test_the_last_errors_of_an_unseen_rank_are_shown_when_it_fails(here):
    body = """
        if rank == 1:
            for number in range(150): print("line", number, file=sys.stderr)
            sys.exit(3)
        print("from rank 0", file=sys.stderr)
        """
    lines = here.ranks(3, body).stderr.splitlines()
    tail = [line for line in lines if line.startswith("[rank ")]
    assert tail == [f"[rank 1] line {number}" for number in range(50, 150)]
    assert lines[-1].startswith("tarantella: rank 1 ")


def test_nothing_is_shown_twice(here):
    body = "print('lost', file=sys.stderr); sys.exit(3 if rank == 1 else 0)"
    assert here.ranks(2, body, "--output-on-all-devices").stderr.count("[rank 1] lost") == 1


@pytest.mark.parametrize("options", [[], ["--log-on-all-devices"]])
def test_log_lines_of_every_rank_are_shown_on_request(here, options):
    # each line in one call: rank 0 and the launcher write to the same file
    body = "sys.stderr.write(f'tarantella[{rank}]: info: hello\\n'); sys.stderr.write('other\\n')"
    lines = here.ranks(2, body, *options).stderr.splitlines()
    assert ("tarantella[1]: info: hello" in lines) == bool(options)
    assert lines.count("other") == 1
