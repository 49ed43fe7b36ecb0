"""`--preload`: modules are imported once, by the launcher, and ranks are its forks.

That such ranks end, print and get signals as others do is asked where that is asked of others (`conftest.FORKS_TOO`).
"""

from __future__ import annotations

import signal
from textwrap import dedent

import pytest


def test_the_launcher_imports_once_for_all(here):
    (here.folder / "slow.py").write_text("import os\nWHO = os.getpid()\n")
    result = here.ranks(3, "import slow\nprint(slow.WHO, os.getppid())", "--preload", "slow,json", "--output-on-all-devices")
    assert result.returncode == 0, result.stderr
    who = {word for line in result.stdout.splitlines() for word in line.split()[2:]}
    assert len(result.stdout.splitlines()) == 3
    assert len(who) == 1


def test_the_script_is_main(here):
    """Its names, words and folder, as without the option."""
    body = """
    import __main__, pickle
    class Mine: pass
    print(__name__, __file__ == __main__.__file__, os.path.isabs(__file__), sys.argv[1:])
    print(sys.path[0] == os.path.dirname(__file__), type(pickle.loads(pickle.dumps(Mine()))) is Mine, __spec__)
    """
    plain, forked = (here.run("-n", 1, *how, "--", here.script(body), "a", "-b").stdout for how in ((), ("--preload", "json")))
    assert plain == forked == "__main__ True True ['a', '-b']\nTrue True None\n"


def test_what_a_rank_spawns_finds_the_script(here):
    body = """
    import multiprocessing
    def double(i): return 2 * i
    if __name__ == "__main__":
        for how in ("spawn", "fork"):
            with multiprocessing.get_context(how).Pool(2) as pool: print(pool.map(double, [1, 2]))
    """
    script = here.folder / "spawns.py"  # without what other scripts begin with: a spawned process is no rank
    script.write_text(dedent(body))
    result = here.run("-n", 1, "--preload", "json", "--", script)
    assert result.stdout == "[2, 4]\n[2, 4]\n", result.stderr


def test_a_rank_has_its_environment_and_so_has_the_import(here, monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    (here.folder / "seen.py").write_text(
        "import ctypes, os\ngetenv = ctypes.CDLL(None).getenv\ngetenv.restype = ctypes.c_char_p\n"
        "SEEN = [getenv(b'KERAS_BACKEND'), getenv(b'TNT_RANK')]\n"
    )
    body = "import seen\nadded = sorted(key for key in os.environ if 'ADDED' in key)\n"
    body += "print(seen.SEEN, seen.getenv(b'TNT_RANK'), added)"
    result = here.ranks(2, body, "--preload", "seen", "-x", "KERAS_BACKEND=numpy", "--output-on-all-devices")
    assert sorted(result.stdout.splitlines()) == [f"[rank {i}] [b'numpy', None] b'{i}' []" for i in range(2)], result.stderr


def test_a_rank_may_start_a_job_of_its_own(here):
    """What marks the outer job is not taken for the inner one's."""
    (here.folder / "inner.py").write_text("import os\nprint('inner', os.environ['TNT_SIZE'], flush=True)\n")
    body = """
    import subprocess
    if rank == 0:
        words = [sys.executable, "-m", "tarantella", "-n", "2", "--preload", "json", "--", "inner.py"]
        sys.exit(subprocess.run(words, env={**os.environ, "TNT_INTERNAL_LAUNCHER_ADDED": "HOME"}).returncode)
    """
    result = here.ranks(3, body, "--preload", "json")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "inner 2\n"


def test_a_job_that_is_started_again_has_its_threads_chosen_again(here, monkeypatch):
    """What the launcher chose for the first start is not taken for a wish of the user's."""
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TNT_INTERNAL_THREADS_CHOSEN"):
        monkeypatch.delenv(name, raising=False)
    body = """
    print(os.environ["TF_NUM_INTRAOP_THREADS"], os.environ["TNT_INTERNAL_THREADS_CHOSEN"], flush=True)
    if os.environ["TNT_RESTART"] == "0" and rank == 1: os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0 if os.environ["TNT_RESTART"] == "1" else 20)
    """
    options = ("--max-restarts", 1, "--min-ranks", 1)
    plain, forked = (here.ranks(2, body, *how, *options).stdout for how in ((), ("--preload", "json")))
    assert forked == plain
    assert len(forked.splitlines()) == 2


def test_nothing_of_the_last_start_runs_in_the_next_one(here, gone):
    """Not even a fork of a rank's that has left its session."""
    body = """
    if os.environ["TNT_RESTART"] == "0":
        if os.fork() == 0:
            os.setsid(); mark("pid", os.getpid()); time.sleep(60)
        wait_for("pid"); sys.exit(1)
    """
    result = here.ranks(1, body, "--preload", "json", "--max-restarts", 1)
    assert result.returncode == 0, result.stderr
    gone(here.pids("pid"))


def test_ranks_draw_different_numbers(here):
    body = "import random, numpy\nprint(random.random(), numpy.random.rand())"
    result = here.ranks(3, body, "--preload", "random,numpy", "--output-on-all-devices")
    drawn = [line.split()[2:] for line in result.stdout.splitlines()]
    assert len(drawn) == 3
    assert all(len(set(column)) == 3 for column in zip(*drawn, strict=True))


def test_an_exception_shows_the_script_alone(here):
    script = here.script("def f(): raise KeyError('mine')\nf()")
    plain, forked = (here.run("-n", 1, *how, "--", script) for how in ((), ("--preload", "json")))
    assert plain.returncode == forked.returncode == 1
    assert forked.stderr.splitlines()[:-1] == plain.stderr.splitlines()[:-1]  # the last has the rank's number


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit('bye')",
        "sys.exit(7)",
        "import tarantella; raise KeyboardInterrupt",  # which shows no traceback then
        "import tarantella; os.kill(os.getpid(), signal.SIGINT)",
        "os._exit(9)",
        "x = ]",
    ],
)
def test_a_rank_ends_as_it_would(here, body):
    """With the same code, and after the same last words."""
    script = here.script("import atexit; atexit.register(print, 'at exit', flush=True)\n" + body)
    plain, forked = (here.run("-n", 1, *how, "--", script) for how in ((), ("--preload", "json")))
    assert (forked.returncode, forked.stdout) == (plain.returncode, plain.stdout)
    assert forked.stderr.splitlines()[:-1] == plain.stderr.splitlines()[:-1]


def test_files_of_a_module_stay_open(here):
    (here.folder / "opens.py").write_text("FILE = open(__file__)\n")
    result = here.ranks(2, "import opens\nprint(len(opens.FILE.read()))", "--preload", "opens", "--output-on-all-devices")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_a_ctrl_c_while_modules_are_imported(here):
    (here.folder / "slow.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(60)\n")
    launcher = here.start("-n", 2, "--preload", "slow", "--", here.script("pass"))
    here.read("importing")
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=20)
    assert launcher.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--preload", "no_such_module"], "--preload: cannot import 'no_such_module': ModuleNotFoundError"),
        (["--preload", "fails"], "--preload: cannot import 'fails': ZeroDivisionError: division by zero"),
        (["--preload", "a b"], "--preload: must be names of modules, such as tensorflow,keras, not 'a b'"),
        (["--preload", ""], "--preload: must be names of modules"),
        (["--preload", "json", "--hosts", "a:1,b:1"], "--preload: is for ranks on this node"),
        (["--preload", "json", "--python-interpreter", "python -O"], "is to be run by another program"),
    ],
)
def test_what_cannot_be_is_refused_before_any_rank_starts(here, options, text):
    (here.folder / "fails.py").write_text("1 / 0\n")
    result = here.ranks(1, "print('started')", *options)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tarantella: ")
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_program_is_not_forked(here):
    result = here.run("-n", 1, "--preload", "json", "--", "/bin/true")
    assert result.returncode == 2
    assert "'/bin/true' is to be run by another program" in result.stderr


def test_threads_of_tensorflow_that_exist_already_are_refused(here):
    pytest.importorskip("tensorflow")
    (here.folder / "computes.py").write_text("import tensorflow as tf\ntf.constant(1) + 1\n")
    result = here.ranks(1, "print('started')", "--preload", "computes")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "has computed with TensorFlow when it was imported" in result.stderr
