"""Commands of ours that are started in a folder run no code from there, whatever the files in it are called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

PROGRAMS = Path(sys.executable).parent

STARTS_ONE = """\
#!/bin/sh
# stands in for Open MPI's mpirun and starts one rank
[ $1 = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'
while [ $1 != {python} ]; do shift; done
OMPI_COMM_WORLD_RANK=0 exec "$@"
"""

LAUNCHES = """
    import tarantella as tnt
    if __name__ == "__main__":
        print(tnt.launch(lambda: "called", n=1))
    """


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of each name that the standard library has. Each notes that it was run."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in sys.stdlib_module_names | {"numpy", "tarantella", "sitecustomize"}:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'executed')!r}, 'a').write('{name} ')\n")
    return folder


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where scripts are. A script finds the modules beside it, as Python users expect."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "beside.py").write_text("")
    (folder / "train.py").write_text("import beside, selectors\nprint('trained')\n")
    (folder / "launches.py").write_text(dedent(LAUNCHES))
    mpirun = folder / "mpirun"
    mpirun.write_text(STARTS_ONE.format(python=sys.executable))
    mpirun.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("tarantella --help", "Examples:"),
        ("tarantella --cleanup --dry-run", ""),
        ("tarantella -n 2 -- E/train.py", "trained\n"),
        ("tarantella -n 2 --preload json -- E/train.py", "trained\n"),
        ("tarantella --hosts localhost --mpirun E/mpirun -- E/train.py", "trained\n"),
        ("tarantella --hosts localhost --mpirun E/mpirun --cleanup --dry-run", ""),
        ("tarantella --hosts localhost --mpirun E/mpirun --max-restarts 1 -- E/train.py", "trained\n"),
        ("python E/launches.py", "['called']\n"),
        ("tarantella status --help", "usage"),
        ("tarantella explain --help", "usage"),
        ("tarantella simulate --help", "usage"),
        ("tarantella verify --help", "usage"),
        ("tnt-bench plot --help", "usage"),
    ],
)
def test_nothing_of_the_current_folder_is_run(hostile, elsewhere, words, printed):
    program, *arguments = words.replace("E/", f"{elsewhere}/").split()
    (hostile / "executed").unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    result = subprocess.run(
        [PROGRAMS / program, *arguments], cwd=hostile, env=environment, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout
    executed = hostile / "executed"
    assert not executed.exists(), executed.read_text()


def test_the_modules_there_would_be_run(hostile):
    """So that the test above can fail."""
    subprocess.run([sys.executable, "-m", "json.tool"], cwd=hostile, capture_output=True, timeout=100)
    assert (hostile / "executed").read_text()
    (hostile / "executed").unlink()
