"""The site's pages that are made from the code have all of it, and links lead to the site's pages."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tarantella

ROOT = Path(__file__).resolve().parents[3]
SITE = str(ROOT / "tools/site")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch):
    """A module of tools/site by its name."""
    monkeypatch.syspath_prepend(SITE)
    return importlib.import_module


def test_every_function_of_the_header_is_on_its_page(site) -> None:
    header = (ROOT / "include/tarantella/tarantella.h").read_text()
    functions = re.findall(r"^TNT_EXPORT [^;(]*?(tnt_\w+)\(", header, re.MULTILINE)
    code = "".join(re.findall(r"^```c\n(.*?)^```", site("c_header").page(), re.DOTALL | re.MULTILINE))
    assert len(functions) > 50 and not [name for name in functions if f"{name}(" not in code]


def test_every_public_name_is_on_the_page_or_is_the_predecessors(site) -> None:
    shown = set(re.findall(r"^::: [\w.]+\.(\w+)$", site("python_names").page(), re.MULTILINE))
    missing = set(tarantella.__all__) - shown - set(tarantella._LAZY_MODULES) - {"Sequential", "__version__", "logger"}
    assert [name for name in missing if not tarantella._LAZY[name].startswith("tarantella.compat")] == []


@pytest.mark.parametrize(
    ("page", "text", "shown"),
    [
        ("gpu.md", "[start](../README.md#quick-start)", "[start](index.md#quick-start)"),
        ("index.md", "[bits](docs/reproducible.md#x) and [digits](examples/digits/train.py)", None),
        ("c-api.md", "[`tarantella.hpp`](../include/tarantella/tarantella.hpp)", "`tarantella.hpp`"),
        ("c-api.md", "[h](../include/tarantella/tarantella.h)", "[h](reference/c.md)"),
        ("scaling.md", "[script](../benchmarks/training/scaling.py)", "script (`benchmarks/training/scaling.py`)"),
        ("tutorials/cuda_trainer.md", "[C](../cpu_trainer/README.md)", "[C](cpu_trainer.md)"),
        (
            "gpu.md",
            "[a](#b), [c](https://d.e/f)\n```\n[x](../README.md)\n```",
            "[a](#b), [c](https://d.e/f)\n```\n[x](../README.md)\n```",
        ),
    ],
)
def test_links_lead_to_pages_of_the_site(site, page: str, text: str, shown: str | None) -> None:
    led = site("hooks").on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=page)))
    assert led == (shown or "[bits](reproducible.md#x) and [digits](tutorials/digits.md)")
    assert SITE in sys.path
