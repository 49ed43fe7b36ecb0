"""The command line: what is refused and how, and where each option ends up."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tarantella.variables import FLIGHT_RECORD, OF_RANK, THREADS_CHOSEN

EXAMPLE = "as in tarantella -n 4 -- train.py"
SHOW = "print({key: value for key, value in os.environ.items()}, sys.argv[1:], sep='|')"


def shown(result: subprocess.CompletedProcess[str]) -> tuple[dict[str, str], list[str]]:
    assert result.returncode == 0, result.stderr
    environment, arguments = result.stdout.split("|")
    return eval(environment), eval(arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", f"no script to run: put it after `--`, {EXAMPLE}"),
        ("-n 0 -- rank.py", "-n: must be a whole number from 1 to 4096, not '0'"),
        ("-n -1 -- rank.py", "-n: must be a whole number from 1 to 4096, not '-1'"),
        ("-n x -- rank.py", "-n: must be a whole number from 1 to 4096, not 'x'"),
        ("-n 1.5 -- rank.py", "-n: must be a whole number from 1 to 4096, not '1.5'"),
        ("-n 4097 -- rank.py", "-n: must be a whole number from 1 to 4096, not '4097'"),
        (
            "-n 2 --keep-going --hosts a:2 -- rank.py",
            "--keep-going: is for ranks on this machine that go on without one; mpirun ends the job when a rank fails",
        ),
        (
            "-n 2 --keep-going --max-restarts 1 -- rank.py",
            "--keep-going: is for ranks on this machine that go on without one; --max-restarts starts all ranks again",
        ),
        ("-n 513 -- rank.py", "-n: 513 ranks, but one machine takes 512 at most: name more with --hosts"),
        ("-n 2", f"no script to run: put it after `--`, {EXAMPLE}"),
        ("-n 2 --", f"no script to run: put it after `--`, {EXAMPLE}"),
        ("-n 2 rank.py", f"'rank.py' is no option: put `--` before the script, {EXAMPLE}"),
        ("stauts", "unknown command 'stauts': did you mean tarantella status?"),
        ("explian records --calls 3", "unknown command 'explian': did you mean tarantella explain?"),
        ("-np 0 -- rank.py", "-n: must be a whole number from 1 to 4096, not '0'"),
        ("-n 2 word -- rank.py", "unexpected word 'word' before `--`"),
        ("-n 2 --outputs -- rank.py", "unknown option '--outputs' (options go before `--`; see tarantella --help)"),
        ("-n 2 -- none.py", "script 'none.py' does not exist"),
        ("-n 2 -- folder", "script 'folder' is a directory"),
        ("-n 2 -- data", "script 'data' is not executable and no interpreter is to run it"),
        ("-n 2 -x A=1 B -- rank.py", "-x: 'B' is not KEY=VALUE"),
        ("-n 2 -x =1 -- rank.py", "-x: '=1' is not KEY=VALUE"),
        ("-n 2 -x 1A=1 -- rank.py", "-x: '1A=1' is not KEY=VALUE"),
        ("-n 2 -x -- rank.py", "-x: expected at least one argument"),
        ("-n 2 -x TNT_RANK=1 -- rank.py", "-x: 'TNT_RANK=1': TNT_RANK is set by the launcher for each rank"),
        ("-n 2 --log-level LOUD -- rank.py", "--log-level: must be DEBUG, INFO, WARNING or ERROR, not 'LOUD'"),
        (
            "-n 2 --fusion-threshold 1T -- rank.py",
            "--fusion-threshold: must be kilobytes, a number with K, M or G, inf or autotune, not '1T'",
        ),
        ("-n 2 --gradient-dtype float32 -- rank.py", "--gradient-dtype: must be bfloat16, float16 or none, not 'float32'"),
        ("-n 2 --autotune --fusion-threshold 4M -- rank.py", "--autotune and --fusion-threshold: give one of them"),
        ("-n 2 -x TNT_TIMEOUT=soon -- rank.py", "TNT_TIMEOUT=soon: expected a number of seconds above 0"),
        (
            "-n 2 -x TNT_TIMEOT=5 -- rank.py",
            "TNT_TIMEOT is not a setting of Tarantella: use TNT_TIMEOUT (docs/settings.md has them all)",
        ),
        ("-n 2 --max-restarts x -- rank.py", "--max-restarts: must be a whole number, not 'x'"),
        ("-n 2 --max-restarts -1 -- rank.py", "--max-restarts: must be a whole number, not '-1'"),
        ("-n 2 --min-ranks 1 -- rank.py", "--min-ranks: is for --max-restarts and --elastic"),
        (
            "-n 2 --elastic --hosts a:2 --mpirun mpirun -- rank.py",
            "--elastic: mpirun ends the job when a rank is lost: leave --mpirun out (ssh starts the ranks then), or "
            "use --max-restarts",
        ),
        ("-n 2 --elastic --keep-going -- rank.py", "--elastic: lets fit go on without lost ranks; --keep-going is for C"),
        (
            "--elastic --hosts a,localhost -- rank.py",
            "--elastic: ranks on other hosts cannot find 'localhost': give this host the name that they know",
        ),
        (
            "--elastic --hosts a,b --max-restarts 1 -- rank.py",
            "--elastic: --max-restarts does not go with it on several hosts: leave one of them out",
        ),
        (
            "--elastic --hosts a,b --flight-recorder records -- rank.py",
            "--elastic: --flight-recorder does not go with it on several hosts: leave one of them out",
        ),
        (
            "--hosts a,b --remote-shell ssh -- rank.py",
            "--remote-shell: is for --elastic on several hosts; other jobs there are started by mpirun",
        ),
        (
            "-n 2 --max-ranks 4 -- rank.py",
            "--max-ranks: is for --elastic; other jobs keep the number of ranks with which they began",
        ),
        (
            "-n 2 --elastic --max-ranks 4 --hosts a:2 -- rank.py",
            "--max-ranks: the job grows when slots are added to its hostfile: give it one with --hostfile",
        ),
        ("-n 2 --elastic --max-ranks 1 --hostfile hosts -- rank.py", "--max-ranks: 1 rank at most, but the job begins with 2"),
        (
            "-n 2 --elastic --max-ranks 513 --hostfile hosts -- rank.py",
            "--max-ranks: 513 ranks, but one machine takes 512 at most",
        ),
        (
            "-n 2 --elastic --max-ranks 4 --hostfile hosts --remote-shell ssh -- rank.py",
            "--elastic: ranks on other hosts cannot find 'localhost': give this host the name that they know",
        ),
        ("-n 2 --max-restarts 1 --min-ranks 3 -- rank.py", "--min-ranks: 3 ranks, but the job has 2"),
        ("-n 2 --max-restarts 1 --min-ranks 0 -- rank.py", "--min-ranks: must be a whole number from 1 to 4096, not '0'"),
        ("-n 2 -x TNT_RESTART=1 -- rank.py", "-x: 'TNT_RESTART=1': TNT_RESTART is set by the launcher for each rank"),
        ("-n 2 --reproducible 6 -- rank.py", "--reproducible: must be a power of two, such as 8, not '6'"),
        ("-n 2 --reproducible 0 -- rank.py", "--reproducible: must be a power of two, such as 8, not '0'"),
        (
            "-n 3 --reproducible 8 -- rank.py",
            "3 ranks cannot share 8 shards (--reproducible, TNT_REPRODUCIBLE) evenly: 1, 2, 4 or 8 can",
        ),
        (
            "-n 2 -x TNT_REPRODUCIBLE=1 -- rank.py",
            "2 ranks cannot share 1 shard (--reproducible, TNT_REPRODUCIBLE) evenly: 1 can",
        ),
        (
            "--hosts a:2,b:1 --reproducible 2 -- rank.py",
            "3 ranks cannot share 2 shards (--reproducible, TNT_REPRODUCIBLE) evenly: 1 or 2 can",
        ),
        ("-n 2 -x TNT_REPRODUCIBLE=x -- rank.py", "TNT_REPRODUCIBLE=x: expected a power of two, such as 8"),
        ("-n 2 --timeout 0 -- rank.py", "--timeout: must be a number of seconds above 0, not '0'"),
        ("-n 2 --timeout soon -- rank.py", "--timeout: must be a number of seconds above 0, not 'soon'"),
        ("-n 2 --timeline none/t -- rank.py", "--timeline: must name a file in a folder that exists, not 'none/t'"),
        ("-n 2 --timeline folder -- rank.py", "--timeline: must name a file in a folder that exists, not 'folder'"),
        ("-n 2 --devices-per-node 2 -- rank.py", "-n and --devices-per-node: give one of them"),
        (
            "--n-per-node 0 -- rank.py",
            "--devices-per-node/--n-per-node/--npernode: must be a whole number from 1 to 512, not '0'",
        ),
        ("-n 2 --force -- rank.py", "--force: is for --cleanup"),
        ("--cleanup rank.py", f"'rank.py' is no option: put `--` before the script, {EXAMPLE}"),
        ("-n 2 --python-interpreter none -- rank.py", "--python-interpreter: 'none' is not a program that can be run"),
        ("-n 2 --python-interpreter ' -- rank.py", '--python-interpreter: "\'" is not a program that can be run'),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(here, words, message):
    here.script("mark('started')")
    (here.folder / "folder").mkdir()
    (here.folder / "data").write_text("")
    (here.folder / "hosts").write_text("localhost slots=2\n")
    result = here.run(*words.split())
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"tarantella: {message}\n")
    assert not (here.folder / "started").exists()


@pytest.mark.parametrize("words", ["-np 2", "--nproc_per_node 2", "--nproc-per-node=2"])
def test_options_as_other_launchers_spell_them(here, words):
    here.script("")
    result = here.run(*words.split(), "--dry-run", "--", "rank.py", "-np", "3")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("TNT_SIZE=2") >= 2 and "rank.py -np 3" in result.stdout, result.stdout


def test_options_become_variables(here):
    options = ["--fusion-threshold", "32", "--timeout", "1.5", "--timeline", "t.json", "--log-level", "INFO"]
    options += ["--log-on-all-devices", "--output-on-all-devices", "--gradient-dtype", "bfloat16"]
    options += ["--reproducible", "8"]
    result = here.ranks(1, SHOW, *options)
    result.stdout = result.stdout.removeprefix("[rank 0] ")
    ours, _ = shown(result)
    assert ours["TNT_FUSION_THRESHOLD"] == "32"
    assert ours["TNT_TIMEOUT"] == "1.5"
    assert ours["TNT_REPRODUCIBLE"] == "8"
    assert ours["TNT_GRADIENT_DTYPE"] == "bfloat16"
    assert ours["TNT_TIMELINE"] == str(here.folder / "t.json")
    assert ours["TNT_LOG_LEVEL"] == "INFO"
    assert ours["TNT_ON_ALL_RANKS"] == "output,log"


def test_options_add_to_what_all_ranks_do(here, monkeypatch):
    monkeypatch.setenv("TNT_ON_ALL_RANKS", "tensorboard")
    ours, _ = shown(here.ranks(1, SHOW, "--log-on-all-devices", "--autotune"))
    assert ours["TNT_ON_ALL_RANKS"] == "log,tensorboard"
    assert ours["TNT_FUSION_THRESHOLD"] == "autotune"


def test_an_unknown_setting_in_the_environment_is_refused(here, monkeypatch):
    monkeypatch.setenv("TNT_OUTPUT_ON_ALL_DEVICES", "1")
    result = here.ranks(2, "mark('started')")
    assert result.returncode == 2
    assert "TNT_OUTPUT_ON_ALL_DEVICES is not a setting of Tarantella: use TNT_ON_ALL_RANKS=output" in result.stderr
    assert not (here.folder / "started").exists()


@pytest.mark.parametrize("option", ["--devices-per-node", "--n-per-node", "--npernode"])
def test_ranks_per_node(here, option):
    environment, _ = shown(here.run(option, 2, "--", here.script(SHOW)))
    assert environment["TNT_SIZE"] == "2"


@pytest.mark.parametrize("option", ["--no-gpu", "--no-gpus"])
def test_gpus_can_be_hidden(here, option):
    environment, _ = shown(here.ranks(1, SHOW, option))
    assert (environment["TNT_GPUS_PER_NODE"], environment["CUDA_VISIBLE_DEVICES"]) == ("0", "-1")
    environment, _ = shown(here.ranks(1, SHOW, option, "-x", "CUDA_VISIBLE_DEVICES=3"))
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"


def test_options_not_given_set_nothing(here):
    environment, _ = shown(here.ranks(1, SHOW))
    ours = {key for key in environment if key.startswith("TNT_")} - {THREADS_CHOSEN}
    assert ours - set(os.environ) == {*OF_RANK, FLIGHT_RECORD} - set(os.environ)


def test_x_takes_several_words_again_and_again_and_wins(here):
    options = ["-x", "A=1", "B=two words=2", "--timeout", "5", "-x", "C=", "TNT_TIMEOUT=7", "A=3"]
    environment, arguments = shown(here.ranks(1, SHOW, *options))
    assert [environment[key] for key in ("A", "B", "C", "TNT_TIMEOUT")] == ["3", "two words=2", "", "7"]
    assert arguments == []


def test_what_follows_the_script_is_the_scripts(here):
    words = ["-n", "7", "--", "-x", "--version", "a b"]
    _, arguments = shown(here.run("-n", 1, "--", here.script(SHOW), *words))
    assert arguments == words


def test_an_interpreter_of_ones_own(here):
    interpreter = here.folder / "interpreter"
    interpreter.write_text('#!/bin/sh\necho "own $1"\n')
    interpreter.chmod(0o755)
    result = here.ranks(1, "", "--python-interpreter", "./interpreter")
    assert result.stdout == f"own {here.folder / 'rank.py'}\n"
    interpreter.rename(here.folder / "with blank")
    assert here.ranks(1, "", "--python-interpreter", "./with blank").stdout == result.stdout
    with_options = here.ranks(1, "", "--python-interpreter", "'./with blank' --option")
    assert with_options.stdout == "own --option\n"


@pytest.mark.parametrize("options", [["--python-interpreter", ""], []])
def test_a_script_that_runs_itself(here, options):
    name = "itself.py" if options else "itself"
    (here.folder / name).write_text('#!/bin/sh\necho "itself $1"\n')
    (here.folder / name).chmod(0o755)
    assert here.run("-n", 1, *options, "--", name, "word").stdout == "itself word\n"


def test_a_script_that_cannot_be_started(here):
    (here.folder / "itself").write_text("neither a binary nor with an interpreter")
    (here.folder / "itself").chmod(0o755)
    result = here.run("-n", 2, "--", "itself")
    assert result.returncode == 126
    assert "tarantella: cannot start rank 0: './itself': " in result.stderr


def test_dry_run_shows_every_rank_and_starts_none(here):
    script = here.script("mark('started')")
    result = here.run("-n", 2, "-x", "A=1", "--no-pin", "--dry-run", "--", script, "two words")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    second = lines.index("rank 1:")
    assert lines[0] == "rank 0:"
    assert lines[second - 1] == lines[-1] == f"  {sys.executable} {script} 'two words'"
    assert {"  TNT_RANK=0", "  TNT_SIZE=2", "  A=1"} <= set(lines[:second])
    assert {"  TNT_RANK=1", "  TNT_SIZE=2", "  A=1"} <= set(lines[second:])
    assert not (here.folder / "started").exists()


def test_help_and_version_need_nothing_else(here):
    text = here.run("--help").stdout
    assert "usage: tarantella -n N [options] -- SCRIPT [args...]" in text
    assert here.run("--version").stdout.startswith("tarantella ")


def test_only_the_standard_library_is_imported(here):
    program = (
        "import sys, tarantella; before = set(sys.modules); import tarantella.cli\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(new - set(sys.stdlib_module_names) - {'tarantella'})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert result.stdout == "set()\n", result.stderr


@pytest.mark.parametrize("name", ["TNT_GPUS_PER_NODE", "TNT_LOG_LEVEL", "TNT_REPRODUCIBLE", "TNT_TIMEOUT"])
def test_a_setting_that_makes_no_sense_is_one_sentence(here, monkeypatch, name):
    monkeypatch.setenv(name, "zz")
    result = here.run("-n", 1, "--", here.script(""))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith(f"tarantella: {name}=zz: expected "), result.stderr


@pytest.mark.parametrize(
    ("code", "returned", "said"), [("None", 0, ""), ("3", 3, ""), ("'no such job'", 1, "tarantella: no such job")]
)
def test_what_ends_a_command_is_its_exit_code(code, returned, said):
    """As in Python: a text is printed, and is a failure."""
    script = (
        "import sys\nfrom tarantella import cli\n"
        f"def status(_): raise SystemExit({code})\n"
        "cli.status = status\nsys.exit(cli.main(['status']))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr.strip()) == (returned, said)
