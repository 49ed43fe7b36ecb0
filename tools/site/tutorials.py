"""The pages of the examples: their README or docstring, and their code as the tests run it."""

from __future__ import annotations

import ast
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = {
    "digits": "Handwritten digits",
    "lenet5": "LeNet-5",
    "resnet50": "ResNet-50",
    "transformer": "",
    "more": "",
    "cpu_trainer": "",
    "cuda_trainer": "",
    "torch_trainer": "",
}
"""The folders, and the titles of those without a README."""


def page(name: str) -> str:
    folder = EXAMPLES / name
    readme = folder / "README.md"
    if readme.exists():
        return readme.read_text() + "".join(map(_listing, sorted([*folder.glob("*_trainer.c*"), *folder.glob("*.py")])))
    script = folder / "train.py"
    tree = ast.parse(script.read_text())
    text = ast.get_docstring(tree) or ""
    others = [file for file in sorted(folder.glob("*.py")) if file != script]
    return f"# {NAMES[name]}\n\n{_with_commands(text)}\n" + "".join(map(_listing, [script, *others]))


def _with_commands(docstring: str) -> str:
    """Indented lines, which are commands, as blocks."""
    blocks = docstring.split("\n\n")
    return "\n\n".join(f"```\n{_dedent(block)}\n```" if block.startswith("    ") else block for block in blocks) + "\n"


def _dedent(block: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in block.splitlines())


def _listing(file: Path) -> str:
    language = {".py": "python", ".c": "c", ".cu": "cpp", ".cuh": "cpp", ".h": "c"}[file.suffix]
    return f"\n## {file.name}\n\n```{language}\n{file.read_text().rstrip()}\n```\n"
