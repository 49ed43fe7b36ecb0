"""`tarantella verify`: what it compares, what it says, and its exit codes. The scripts write fingerprints of their own."""

from __future__ import annotations

import json

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.verify.command import parse_verify
from tarantella.verify.fingerprints import Position, first_difference, read

WRITE = """
import json
size, shards = int(os.environ["TNT_SIZE"]), os.environ["TNT_REPRODUCIBLE"]
lines = [
    {"kind": "run", "ranks": size},
    {"kind": "training", "training": 0, "weights": ["a", "b", "moving"], "optimizer": ["iterations"],
     "variables": [{"name": "a", "bucket": 1}, {"name": "b", "bucket": 0}], "initial": ["1", "2", "3"]},
    {"kind": "step", "training": 0, "epoch": 0, "step": 0, "gradients": ["4", "5"], "weights": ["6", "7"]},
    {"kind": "step", "training": 0, "epoch": 0, "step": 1, "gradients": ["4", "5"], "weights": ["6", "7"]},
    {"kind": "epoch", "training": 0, "epoch": 0, "weights": ["6", "7", "8"], "optimizer": ["9"],
     "logs": {"loss": (0.25).hex(), "val_loss": (0.5).hex()}},
]
_, training, first, second, epoch = lines
"""
END = """
if rank == 0:
    with open(os.environ["TNT_FINGERPRINT"], "w") as file:
        file.writelines(json.dumps(line) + "\\n" for line in lines)
"""


def body(change: str = "") -> str:
    return WRITE + (f"if size == 2:\n    {change}\n" if change else "") + END


def verified(here, change: str = "", *options: object, ranks: str = "1,2"):
    return here.run("verify", "--ranks", ranks, *options, "--", here.script(body(change)))


def test_equal_runs(here):
    result = verified(here, ranks="1,2,2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "epoch  weights  optimizer state  losses and metrics",
        "1      equal    equal            equal",
        "equal to the bit: 1 rank, 2 ranks (run 2) and 2 ranks (run 3) (2 steps, 1 epoch)",
    ]
    assert "tarantella: verify: run 3 of 3: 2 ranks (run 3)" in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("second['gradients'] = ['x', 'x']", "the gradient b (bucket 0) in step 2 of epoch 1"),
        ("second['gradients'] = ['x', '5']", "the gradient a (bucket 1) in step 2 of epoch 1"),
        ("first['gradients'] = None", None),
        ("first['weights'] = ['6', 'x']", "the weight b in step 1 of epoch 1"),
        ("epoch['weights'][2] = 'x'", "the weight moving after epoch 1"),
        ("epoch['optimizer'] = ['x']", "the optimizer state iterations after epoch 1"),
        ("epoch['logs']['val_loss'] = (0.5 + 2 ** -53).hex()",
         "the log val_loss after epoch 1: 0.5 and 0.5000000000000001"),
        ("del epoch['logs']['loss']", "the log loss after epoch 1: 0.25 and nothing"),
        ("lines.remove(second)", "only the first of them was there in step 2 of epoch 1"),
        ("lines.append({**epoch, 'epoch': 1})", "only the second of them was there after epoch 2"),
        ("training['initial'][1] = 'x'", "the initial weight b before the first step"),
        ("training['variables'][0]['name'] = 'c'", "the models have other variables before the first step"),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(here, change, said):
    result = verified(here, change)
    assert result.returncode == (0 if said is None else 1), result.stderr
    assert said is None or f"2 ranks differs first from 1 rank: {said}\n" in result.stdout
    assert ("must set a seed" in result.stdout) == ("initial" in change)


def test_what_differs_is_seen_in_the_table(here):
    result = verified(here, "epoch['optimizer'] = ['x']")
    assert result.stdout.splitlines()[1].split("  ") == ["1", "", "", "equal", "", "differ: 2 ranks", "equal"]


def test_json_is_alone_on_standard_output(here):
    script = here.script("print('said by the script')\n" + body("second['gradients'] = ['4', 'x']"))
    result = here.run("verify", "--ranks", "1,2", "--json", "--", script)
    assert result.returncode == 1
    assert "said by the script" in result.stderr
    found = json.loads(result.stdout)
    assert (found["equal"], found["shards"]) == (False, 8)
    assert [(run["ranks"], run["steps"], run["epochs"]) for run in found["runs"]] == [(1, 2, 1), (2, 2, 1)]
    assert found["epochs"] == [{"training": 0, "epoch": 0, "weights": "equal", "optimizer": "equal", "logs": "equal"}]
    (difference,) = found["differences"]
    assert difference["text"] == "the gradient b (bucket 0) in step 2 of epoch 1"
    assert [difference[key] for key in ("runs", "epoch", "step", "what", "name", "bucket")] == [
        ["1 rank", "2 ranks"], 0, 1, "gradient", "b", 0]  # fmt: skip


def test_a_run_that_fails_is_named_and_ends_all(here):
    result = verified(here, "sys.exit(3)", ranks="1,2,4")
    assert (result.returncode, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("tarantella: verify: run 2 (2 ranks) has failed with code 3: rank ")
    assert "run 3" not in result.stderr


def test_a_run_without_a_step_is_an_error(here):
    result = here.run("verify", "--json", "--", here.script("pass"))
    assert result.returncode == 2
    assert "run 1 (1 rank) cannot be compared: no tnt.Model has made a step in fit" in json.loads(result.stdout)["error"]


def test_an_interruption_ends_all(here):
    launcher = here.start("verify", "--ranks", "1,2", "--", here.script("mark('up'); time.sleep(60)"))
    here.read("up")
    launcher.terminate()
    _, said = launcher.communicate(timeout=10)
    assert launcher.returncode == 2
    assert said.splitlines()[-1] == "tarantella: verify: interrupted in run 1 (1 rank)"


def test_folders(here):
    """Each run may have an empty one of its own; by default it is where verify was started."""
    script = here.script("mark('here', os.getcwd())\nassert not os.path.exists(f'left{rank}')\nmark(f'left{rank}')\n" + body())
    result = here.run("verify", "--ranks", "1,2", "--own-folders", "--keep", "kept", "--", script)
    assert result.returncode == 0, result.stderr
    assert not (here.folder / "here").exists()
    assert [path.name for path in sorted((here.folder / "kept").iterdir())] == ["run1.jsonl", "run2.jsonl"]
    result = here.run("verify", "--ranks", "1,1", "--", here.script("mark('here', os.getcwd())\n" + body()))
    assert result.returncode == 0, result.stderr
    assert here.read("here") == str(here.folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--ranks 1 -- rank.py", "--ranks: must be two numbers of ranks or more, such as 1,2,4, not '1'"),
        ("--ranks 1,x -- rank.py", "--ranks: must be two numbers of ranks or more, such as 1,2,4, not '1,x'"),
        ("--ranks 1,3 -- rank.py", "3 ranks cannot share 8 shards (--reproducible, TNT_REPRODUCIBLE) evenly: 1, 2, 4 or 8 can"),
        ("--reproducible 3 -- rank.py", "--reproducible: must be a power of two, such as 8, not '3'"),
        ("-n 2 -- rank.py",
         "-n: say with --ranks how many ranks each run has, as in tarantella verify --ranks 1,2,4 -- train.py"),
        ("--dry-run -- rank.py", "--dry-run: not with verify"),
        ("--cleanup -- rank.py", "--cleanup: not with verify"),
        ("-- none.py", "script 'none.py' does not exist"),
        ("--own-folders -- -m pkg", "--own-folders: '-m' finds nothing in an empty folder: give a script's file, as in "
         "tarantella verify --ranks 1,2,4 -- train.py"),
        ("--", "no script to run: put it after `--`, as in tarantella -n 4 -- train.py"),
        ("--loud -- rank.py", "unknown option '--loud' (options go before `--`; see tarantella --help)"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_runs(here, words, message):
    here.script("mark('started')")
    result = here.run("verify", *words.split())
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"tarantella: {message}\n")
    assert not (here.folder / "started").exists()


def test_the_shards_follow_the_largest_number_of_ranks():
    assert parse_verify(["--", "x"]).shards == 8
    assert parse_verify(["--ranks", "2,16", "--", "x"]).shards == 16
    assert parse_verify(["--ranks", "2,4", "--reproducible", "4", "--", "x"]).shards == 4
    with pytest.raises(UsageError):
        parse_verify(["--ranks", ",", "--", "x"])


def test_the_launchers_options_reach_every_run(here):
    script = here.script("assert os.environ['A'] == 'b' and os.environ['TNT_TIMEOUT'] == '5'\n" + body())
    result = here.run("verify", "--ranks", "1,2", "--timeout", 5, "-x", "A=b", "--", script)
    assert result.returncode == 0, result.stderr


def test_what_a_restart_does_again_counts_once(tmp_path):
    """The line that was being written when the job was killed does not count, and the later of two lines does."""
    lines = [
        {"kind": "training", "training": 0, "weights": ["a"], "optimizer": [], "initial": ["0"],
         "variables": [{"name": "a", "bucket": None}]},
        *({"kind": "step", "training": 0, "epoch": 0, "step": i, "gradients": None, "weights": [str(i)]} for i in range(4)),
    ]  # fmt: skip
    straight, again = tmp_path / "straight", tmp_path / "again"
    straight.write_text("\n".join(map(json.dumps, lines)))
    torn = {**lines[3], "weights": ["not the same"]}
    before = [*lines[:3], torn]
    after = [{"kind": "restart", "restart": 1}, lines[0], *lines[2:]]
    again.write_text("\n".join([*map(json.dumps, before), json.dumps(lines[4])[:20], *map(json.dumps, after)]))
    assert first_difference(read(straight), read(again)) is None
    assert list(read(again).steps) == [Position(0, 0, i) for i in range(4)]
