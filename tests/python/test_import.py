"""`import tarantella` alone: quick, without NumPy, TensorFlow or a launcher."""

from __future__ import annotations

import pytest

import tarantella as tnt
from support.launch import run_alone


def test_import_is_quick_and_loads_nothing_heavy():
    source = """
        import subprocess, sys, time
        code = '''
        import sys, time
        began = time.perf_counter()
        import tarantella
        print(time.perf_counter() - began)
        print(sorted({"numpy", "tensorflow", "keras", "tarantella.runtime"} & set(sys.modules)))
        '''
        for _ in range(5):  # the best of some: others may use the machine
            print(subprocess.run([sys.executable, "-c", code.replace("\\n        ", "\\n")], capture_output=True, text=True,
                                 check=True).stdout, end="")
        """
    lines = run_alone(source).good().stdout.splitlines()
    assert min(map(float, lines[::2])) < 0.3
    assert lines[1::2] == ["[]"] * 5


def test_one_rank_without_the_launcher():
    source = """
        import sys
        import tarantella as tnt
        assert (tnt.get_rank(), tnt.get_size(), tnt.get_local_rank(), tnt.get_local_size()) == (0, 1, 0, 1)
        assert tnt.is_master_rank() and tnt.get_master_rank() == 0
        tnt.barrier()
        assert tnt.all_reduce([1.0, 2.0]).tolist() == tnt.broadcast([1.0, 2.0]).tolist() == [1.0, 2.0]
        assert tnt.all_reduce(3, op="avg") == 3 and tnt.all_gather([1, 2]).tolist() == [[1, 2]]
        assert "tensorflow" not in sys.modules
        """
    result = run_alone(source, forked=False).good()
    assert result.stderr == ""


def test_all_names_can_be_had():
    for name in set(tnt.__all__) - {"Model"}:  # that one loads TensorFlow
        assert getattr(tnt, name) is not None
    assert set(tnt.__all__) <= set(dir(tnt))


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'tarantella' has no attribute 'modle'"):
        tnt.modle  # noqa: B018


NONSENSE = [
    {"TNT_TIMEOUT": "abc"},
    {"TNT_TIMEOUT": "0"},
    {"TNT_TIMEOUT": "-1"},
    {"TNT_FUSION_THRESHOLD": "lots"},
    {"TNT_LOG_LEVEL": "LOUD"},
    {"TNT_ON_ALL_RANKS": "perhaps"},
    {"TNT_REPRODUCIBLE": "6"},
    {"TNT_GPUS_PER_NODE": "two"},
    {"TNT_SIZE": "two"},
    {"TNT_SIZE": "0"},
    {"TNT_SIZE": "2"},
    {"TNT_RANK": "1"},
    {"TNT_RANK": "-1"},
]


@pytest.mark.parametrize("env", NONSENSE, ids=lambda env: "=".join(*env.items()))
def test_nonsense_in_the_environment_is_refused_by_name_and_value(env):
    result = run_alone("import tarantella as tnt; tnt.get_rank()", env=env)
    assert result.code == 1, result.said
    (((name, value)),) = env.items()
    error = result.stderr.splitlines()[-1]
    assert "InvalidArgumentError" in error, result.said
    assert f"{name}={value}" in error, result.said
    assert result.stderr.count("Traceback") == 1
