"""The examples in the documentation run, one after another, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.launch import run_alone, run_ranks

DOCS = Path(__file__).resolve().parents[2] / "docs"

END = """
weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
assert np.isfinite(weights).all()
assert (tnt.all_reduce(weights, "max") == tnt.all_reduce(weights, "min")).all(), "ranks have different weights"
print("equal on", size, float(np.abs(weights).sum()))
"""


def source(page: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    return "".join(blocks) + END


PAGES = [("custom-loops.md", 1), ("custom-loops.md", 3), ("training.md", 1), ("training.md", 2)]


@pytest.mark.parametrize(("page", "ranks"), PAGES)
def test_page(page, ranks):
    page = source(page)
    result = run_alone(page) if ranks == 1 else run_ranks(ranks, page, env={"TNT_TIMEOUT": "20"})
    assert f"equal on {ranks}" in result.good().stdout
