"""What mkdocs calls when it builds the site: adds the pages that are not files of docs/, and leads links to them.

Pages outside of docs keep the links that work in a repository. On the site a link to another page of these leads there, and a
link to a source becomes the source's name.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads this file by its path
import c_header
import commands
import python_names
import tutorials

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the repository's root, and what they are called on the site."""
GENERATED = {
    "reference/c.md": c_header.page,
    "reference/commands.md": commands.page,
    "reference/python.md": python_names.page,
    **{f"tutorials/{name}.md": (lambda name=name: tutorials.page(name)) for name in tutorials.NAMES},
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for name, page in GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads the links of a page: outside of code, where they would be text."""
    name = page.file.src_uri
    source = next((path for path, shown in OUTSIDE.items() if shown == name), f"docs/{name}")
    if name.startswith("tutorials/"):
        source = f"examples/{Path(name).stem}/README.md"
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda found: _link(found, source, name), part) for part in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str], source: str, name: str) -> str:
    image, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    here = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    shown = _on_site(here)
    if shown is None:
        return text if text.startswith("`") else f"{text} (`{here}`)"
    relative = posixpath.relpath(shown, posixpath.dirname(name) or ".")
    return f"{image}[{text}]({relative}{'#' if anchor else ''}{anchor})"


def _on_site(path: str) -> str | None:
    """The page or picture on the site for a file of the repository, None if it has none."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    example = re.match(r"examples/(\w+)", path)
    if example and example[1] in tutorials.NAMES:
        return f"tutorials/{example[1]}.md"
    return {"include/tarantella/tarantella.h": "reference/c.md"}.get(path)
