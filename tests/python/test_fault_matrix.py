"""The fault matrix (tests/soak/matrix.py): all cells over shared memory, and the others as far as time allows."""

from __future__ import annotations

from pathlib import Path

import pytest

import fault_table
from fault_cells import Cell, Found, sensible_cells, spread
from matrix import Matrix, Results
from support.launch import SLACK
from support.mpirun import needs_mpirun

PAGE = Path(__file__).resolve().parents[2] / "docs/reliability.md"
AT_ONCE = 6


def hold(folder: Path, cells: list[Cell]) -> None:
    found = dict(Matrix(folder, SLACK).run(cells, AT_ONCE))
    assert not {cell for cell in cells if found[cell].wrong}, "\n".join(
        f"{cell}: {'; '.join(found[cell].wrong)}\n{found[cell].said}" for cell in cells if found[cell].wrong
    )


def test_every_cell_over_shared_memory(tmp_path: Path) -> None:
    hold(tmp_path, sensible_cells(("shm",)))


@needs_mpirun
@pytest.mark.long
def test_each_fault_in_each_phase_under_mpirun(tmp_path: Path) -> None:
    cells = spread(sensible_cells(("mpi", "hierarchical")))
    assert {cell.transport for cell in cells} == {"mpi", "hierarchical"}
    hold(tmp_path, cells)


def test_some_cells_by_tcp(tmp_path: Path) -> None:
    cells = sensible_cells(("tcp",))
    hold(tmp_path, spread(cells)[::4])


@pytest.mark.long
def test_phases_of_keras(tmp_path: Path) -> None:
    hold(tmp_path, [Cell("shm", "evaluating", "kill", "1"), Cell("shm", "saving", "raise", "0")])


def test_the_page_has_the_cells_of_the_matrix() -> None:
    text = PAGE.read_text()
    assert fault_table.victims_table() in text and fault_table.reasons() in text


def test_a_matrix_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    first, second = sensible_cells(("shm",))[:2]
    file = tmp_path / "results"
    results = Results(file)
    late = Found(seconds=3.0)
    late.add("seconds", "took 3.0 s")
    results.add(first, Found(seconds=0.5))
    results.add(first, late)
    results.add(second, Found())
    file.write_text(file.read_text() + '{"cell": {"transport": "sh')
    again = Results(file)
    assert again.found == {first: [Found(seconds=0.5), late], second: [Found()]}
    assert again.missing([first, second], 3) == [second, first, second]
    assert "| shm | C | 1-2 | 3 | 2 | 3 | 3 | 3 |" in fault_table.figures_table(again.found)
