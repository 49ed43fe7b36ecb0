"""What may follow `--`: scripts, modules, python's command line, standard input; and what is refused before a rank starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import dedent

import pytest

from tarantella.launcher.command_line.command import split_python

SHOW = """
    import __main__, os, sys
    spec = __spec__ and (__spec__.name, __spec__.origin == __file__)
    file = globals().get("__file__")
    print([__name__, __main__.__dict__ is globals(), spec, __package__, file and os.path.basename(file), sys.argv[1:],
           os.path.basename(sys.argv[0]), sys.path[0], os.environ["TNT_RANK"]], flush=True)
    """
FAIL = """
    def f():
        raise KeyError("mine")
    f()
    """
FORKED = pytest.mark.parametrize("how", [(), ("--preload", "json")], ids=["started", "forked"])


@pytest.fixture
def package(here):
    folder = here.folder / "pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name, text in {"train": SHOW, "__main__": SHOW, "fail": FAIL}.items():
        (folder / f"{name}.py").write_text(dedent(text))
    (here.folder / "show.py").write_text(dedent(SHOW))
    return here


def as_python_has_it(here, words: list[str], stdin: str | None) -> str:
    """What rank 0's program prints if the interpreter itself runs it."""
    environment = {"TNT_RANK": "0", "PATH": "/usr/bin:/bin"}
    run = {"cwd": here.folder, "env": environment, "timeout": 99}
    result = subprocess.run([sys.executable, *words], input=stdin or "", capture_output=True, text=True, **run)
    return result.stdout + result.stderr


def started(here, how, words, stdin=None):
    if stdin is None:
        return here.run("-n", 2, *how, "--", *words)
    (here.folder / "stdin").write_text(stdin)
    with open(here.folder / "stdin") as file:
        return here.run("-n", 2, *how, "--", *words, stdin=file)


@FORKED
@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["-m", "pkg.train", "a", "-b"], None),
        (["-m", "pkg"], None),
        (["-", "a b", "-c"], SHOW),
        (["-c", dedent(SHOW), "x"], None),
        (["show.py", "-m", "x"], None),
    ],
    ids=["module", "package", "stdin", "text", "script"],
)
def test_the_program_finds_itself_as_python_has_it(package, how, words, stdin):
    stdin = stdin and dedent(stdin)
    expected = as_python_has_it(package, words, stdin)
    assert expected.startswith("['__main__', True"), expected
    by_name = ["python"] if (words[0] == "-m") == (how == ()) else []
    result = started(package, how, [*by_name, *words], stdin)
    assert (result.returncode, result.stdout) == (0, expected), result.stderr


@FORKED
@pytest.mark.parametrize(("words", "stdin"), [(["-m", "pkg.fail"], None), (["-"], FAIL)], ids=["module", "stdin"])
def test_tracebacks_have_the_names_that_python_gives(package, how, words, stdin):
    stdin = stdin and dedent(stdin)
    expected = [line for line in as_python_has_it(package, words, stdin).splitlines() if "<frozen runpy>" not in line]
    assert expected[-1] == "KeyError: 'mine'"
    result = started(package, how, words, stdin)
    assert result.returncode == 1
    said = [line for line in result.stderr.splitlines() if "<frozen runpy>" not in line]
    assert said[1 : 1 + len(expected)] == expected or said[-1 - len(expected) : -1] == [f"[rank 1] {line}" for line in expected]


def test_options_of_python_go_with_it(package):
    result = package.run("-n", 2, "--", "python", "-O", "-X", "dev", "-um", "pkg.train", "a")
    assert result.returncode == 0, result.stderr
    assert "['a']" in result.stdout
    (package.folder / "flags.py").write_text("import sys; print(sys.flags.optimize, sys.flags.dev_mode, __debug__)")
    assert package.run("-n", 1, "--", "python3", "-OXdev", "flags.py").stdout == "1 True False\n"


def test_a_module_that_an_interpreter_of_ones_own_runs(package):
    result = package.run("-n", 1, "--python-interpreter", f"{sys.executable} -O", "--", "-m", "pkg.train", "a")
    assert "'pkg.train'" in result.stdout, result.stderr


@FORKED
def test_all_ranks_and_all_starts_read_the_same_script_from_standard_input(here, how):
    text = (
        """
    import os, sys
    rest = sys.stdin.read()
    print("start", os.environ["TNT_RESTART"], repr(rest), flush=True)
    sys.exit(3 if os.environ["TNT_RESTART"] == "0" and os.environ["TNT_RANK"] == "1" else 0)
    """
        + 3000 * "    # longer than what a pipe holds\n"
    )
    result = started(here, (*how, "--max-restarts", 1, "--output-on-all-devices"), ["-"], dedent(text))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert sorted(lines)[-2:] == ["[rank 1] start 0 ''", "[rank 1] start 1 ''"], result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-- -m", "-m: '' is not the name of a module: name one as in tarantella -n 4 -- -m package.train"),
        ("-- -m -n", "-m: '-n' is not the name of a module"),
        ("-- -m ./show.py", "-m: './show.py' is not the name of a module"),
        ("-- -m show.py", "-m: there is no module 'show.py' in FOLDER or among the installed packages (a script is started "),
        ("-- -m nowhere", "-m: there is no module 'nowhere' in FOLDER"),
        ("-- -m pkg.trian x", "-m: there is no module 'pkg.trian' in FOLDER"),
        ("-- python -m pkg.trian", "-m: there is no module 'pkg.trian' in FOLDER"),
        ("-- python", "'python' alone: name the script that it is to run, as in tarantella -n 4 -- python train.py"),
        ("-- python -u", "'python' alone: name the script"),
        ("-- python nowhere.py", "script 'nowhere.py' does not exist"),
        ("-- -c", "-c: give the text of the program after it"),
        ("-- -", "-: standard input has no script: give one as in tarantella -n 4 -- - < train.py"),
        ("-- pkg.train", "script 'pkg.train' does not exist (a module is started by -m, as in tarantella -n 4 -- -m package."),
        ("-m pkg.train", "'-m': put `--` before it, as in tarantella -n 4 -- -m package.train"),
        ("-", "'-': put `--` before it, as in tarantella -n 4 -- - < train.py"),
        ("--python-interpreter python -- python show.py", "--python-interpreter and 'python' after `--`: give one of them"),
        ("--preload json -- python -u show.py", "--preload: 'python' is to be run by another program"),
        ("--preload json -- hostname", "--preload: 'hostname' is to be run by another program"),
    ],
)
def test_nonsense_is_refused_in_one_line(package, words, message):
    result = package.run("-n", 2, *words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("tarantella: " + message.replace("FOLDER", str(package.folder)))
    assert len(result.stderr.splitlines()) == 1


def test_a_script_from_standard_input_needs_this_machine(here):
    (here.folder / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    (here.folder / "mpirun").chmod(0o755)
    result = started(here, ("--hosts", "a:1,b:1", "--mpirun", "./mpirun"), ["-"], "print(1)")
    assert result.returncode == 2
    assert "-: mpirun gives standard input to rank 0 alone" in result.stderr


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("train.py -m x", "", "train.py -m x"),
        ("-u -O train.py", "-u -O", "train.py"),
        ("-W error -X dev -m pkg", "-Werror -Xdev", "-m pkg"),
        ("-Werror::m -m pkg a", "-Werror::m", "-m pkg a"),
        ("-uOm pkg a", "-uO", "-m pkg a"),
        ("-mpkg a", "", "-m pkg a"),
        ("- a", "", "- a"),
        ("--check-hash-based-pycs=always train.py", "--check-hash-based-pycs=always", "train.py"),
        ("-u", "-u", ""),
        ("", "", ""),
    ],
)
def test_the_command_line_of_python(words, options, program):
    assert split_python(words.split()) == (options.split(), program.split())


@FORKED
def test_a_ctrl_c_is_one_line(here, how):
    """The ranks show no frames, one that waits for an interrupted one does not either."""
    text = "import os, time\nimport tarantella as tnt\ntnt.barrier()\nopen(f'ready{tnt.get_rank()}', 'w').close()\n"
    text += "time.sleep(60) if tnt.get_rank() else tnt.barrier()\n"
    (here.folder / "waits.py").write_text(text)
    launcher = here.start("-n", 2, *how, "--output-on-all-devices", "--", "waits.py")
    for rank in range(2):
        here.read(f"ready{rank}")
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGINT
    assert err.splitlines()[1:] == ["tarantella: interrupted; ending 2 ranks"]


def test_a_ctrl_c_before_the_script_has_imported_tarantella_is_one_line(here):
    """TensorFlow's import takes seconds. The environment's own sitecustomize runs, and nobody sees ours."""
    (here.folder / "sitecustomize.py").write_text("open('customized', 'w').close()\n")
    text = "import os, sys, time, sitecustomize\nassert os.path.dirname(sitecustomize.__file__) == os.getcwd()\n"
    text += "assert os.environ['PYTHONPATH'] == os.getcwd() and not any('start' in path for path in sys.path)\n"
    text += "open('ready', 'w').close()\ntime.sleep(60)\n"
    (here.folder / "imports.py").write_text(text)
    launcher = here.start("-n", 1, "-x", f"PYTHONPATH={here.folder}", "--", "imports.py")
    here.read("ready")
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGINT
    assert err.splitlines()[1:] == ["tarantella: interrupted; ending 1 rank"] and (here.folder / "customized").exists()


@pytest.mark.parametrize("path", [None, "", "/nowhere"])
def test_a_rank_has_the_search_path_that_it_would_have_alone(here, path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    (here.folder / "shows.py").write_text("import os, sys\nprint(sys.path, os.environ.get('PYTHONPATH') or None)\n")
    alone = subprocess.run([sys.executable, "shows.py"], cwd=here.folder, capture_output=True, text=True, timeout=60)
    assert here.run("-n", 1, "--", "shows.py").stdout == alone.stdout != ""


def test_on_request_the_frames_of_an_interrupt_are_shown(here):
    text = "import tarantella as tnt, time\ntnt.barrier()\nopen('ready', 'w').close()\ntime.sleep(60)\n"
    (here.folder / "waits.py").write_text(text)
    launcher = here.start("-n", 1, "--log-level", "DEBUG", "--", "waits.py")
    here.read("ready")
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGINT
    assert 'waits.py", line 4, in <module>' in err


def test_help_begins_with_examples(here):
    lines = here.run("--help").stdout.splitlines()
    assert [line.strip().split("  ")[0] for line in lines[1:4]] == [
        "tarantella -n 4 -- train.py --epochs 3",
        "tarantella -n 4 -- -m package.train",
        "tarantella --hosts node1:4,node2:4 -- train.py",
    ]
