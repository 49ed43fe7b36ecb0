"""Runs a script of checks (`ranks/checks.py`) once and gives what each found, rank by rank."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.forked_jobs import GRAPHS_AS_TRACED
from support.launch import Result, run_ranks
from support.mpirun import mpirun


def checks_in(script: Path) -> list[str]:
    """The names of the checks of a script, those in a branch last, without running it."""
    return [
        node.name
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(decorator, ast.Name) and decorator.id == "check" for decorator in node.decorator_list)
    ]


class Findings:
    """What the checks of a script gave on each rank."""

    def __init__(
        self,
        ranks: int,
        script: Path,
        timeout: float = 120,
        env: Mapping[str, str] | None = None,
        launcher_options: Sequence[object] = (),
        only: Sequence[str] = (),
        mpi: bool = False,
        forked: bool = True,
        optimized: bool = False,
    ) -> None:
        """Runs the script, all its checks or only those that are named; under mpirun if `mpi`. forked: as for `run_ranks`.

        optimized: whether TensorFlow optimizes the graphs of forked ranks, as it does for users and in all jobs that are not
        Findings. It takes a seventh of the time, and most checks are of what is in the graphs.
        """
        if not optimized:
            env = {**(env or {}), GRAPHS_AS_TRACED: "1"}
        with tempfile.TemporaryDirectory() as folder:
            if mpi:
                job = mpirun(ranks, script, folder, *only, timeout=timeout, env=env)
                assert job.code == 0, job.said
            else:
                options = {"timeout": timeout, "env": env, "launcher_options": launcher_options, "forked": forked}
                self.result: Result = run_ranks(ranks, script, folder, *only, **options).good()
            self._found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]

    def __getitem__(self, name: str) -> list[Any]:
        """What the check returned on each rank; fails with what it raised."""
        errors = [f"rank {rank}: {found[name]['error']}" for rank, found in enumerate(self._found) if "error" in found[name]]
        assert not errors, "\n".join(errors)
        return [found[name]["value"] for found in self._found]
