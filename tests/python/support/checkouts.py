"""Small checkouts in which the tools are tested, with stubs of the programs that they call."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def program(path: Path, text: str) -> Path:
    return write(path, f"#!/usr/bin/env bash\n{text}\n", 0o755)


def copy_tools(tree: Path, *names: str) -> None:
    (tree / "tools").mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(TOOLS / name, tree / "tools" / name)


def sourced(commands: str, cwd: Path = TOOLS.parent, **options: Any) -> subprocess.CompletedProcess[str]:
    """What tools/building.sh makes of some commands."""
    script = f"set -euo pipefail; . {TOOLS}/building.sh; {commands}"
    return subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60, **options)


def alive(pid: str) -> bool:
    """Whether a process runs; one that has ended stays in /proc until somebody asks how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_it_sleeps(pid: str) -> None:
    """Until a shell has become `sleep`: bash loses a signal that comes just before it does."""
    while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
