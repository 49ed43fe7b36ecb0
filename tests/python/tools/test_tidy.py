"""tools/tidy looks at changed files, and at no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.checkouts import copy_tools, program, write


@pytest.fixture
def tidied(tmp_path: Path) -> Path:
    tree = tmp_path / "tidied"
    copy_tools(tree, "tidy", "tidy_compiler")
    write(tree / ".clang-tidy", "Checks: all")
    write(tree / "src/base/a.hpp", "int a;\n")
    write(tree / "src/base/b.hpp", '#include "base/a.hpp"\n')
    write(tree / "src/one.cpp", '#include "base/b.hpp"\n')
    write(tree / "src/two.cpp", "#include <vector>\n")
    commands(tree)
    program(
        tree.parent / "bin/clang-tidy",
        """[[ $1 != --version ]] || { echo "LLVM version 14"; exit; }
file=${!#}
echo "${file##*/}" >>"$LOOKED_AT"
! grep -r BAD "$file" || { echo "$file:1: error: bad"; exit 1; }""",
    )
    return tree


def commands(tree: Path, flag: str = "-O2") -> None:
    entries = [
        {"file": f"{tree}/src/{name}.cpp", "command": f"c++ {flag} -I{tree}/src -o {name}.o -c {tree}/src/{name}.cpp"}
        for name in ("one", "two")
    ]
    write(tree / "build/tidy/compile_commands.json", json.dumps(entries))


def looked_at(tree: Path, *words: str, code: int = 0) -> list[str]:
    record = tree.parent / "looked_at"
    record.write_text("")
    path = f"{tree.parent}/bin:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CCACHE_DIR": str(tree.parent / "cache"), "LOOKED_AT": str(record)}
    done = subprocess.run([tree / "tools/tidy", *words], capture_output=True, text=True, timeout=60, env=env)
    files = sorted(record.read_text().split())
    assert done.returncode == code, done.stdout + done.stderr
    if code != 2:
        assert f"clang-tidy: {len(files)} files looked at, {2 - len(files)} known to be clean\n" in done.stdout
    return files


@pytest.mark.skipif(any(shutil.which(tool) is None for tool in ("c++", "ccache")), reason="there is no compiler, or no ccache")
def test_tidy_looks_at_what_changed(tidied: Path) -> None:
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    assert looked_at(tidied) == []
    assert looked_at(tidied, "--all") == ["one.cpp", "two.cpp"]
    write(tidied / "src/base/a.hpp", "int a, b;\n")  # two includes away
    assert looked_at(tidied) == ["one.cpp"]
    assert looked_at(tidied) == []
    write(tidied / "src/two.cpp", "int BAD;\n")
    assert looked_at(tidied, code=1) == looked_at(tidied, code=1) == ["two.cpp"]
    write(tidied / "src/two.cpp", "#include <vector>\n")
    assert looked_at(tidied) == []
    commands(tidied, "-O3")
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    write(tidied / ".clang-tidy", "Checks: none")
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    assert looked_at(tidied, "--al", code=2) == []
    clone = tidied.parent / "clone"
    shutil.copytree(tidied, clone)
    commands(clone, "-O3")
    assert looked_at(clone) == []
