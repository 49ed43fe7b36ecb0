"""The page of the C header: each declaration with the comment before it, under the header's own section titles."""

from __future__ import annotations

import re
from pathlib import Path

HEADER = Path(__file__).resolve().parents[2] / "include/tarantella/tarantella.h"
NAME = re.compile(r"((?<!\w)(?:tnt|TNT)_[\w.]*\w(?:\(\))?)")
SECTION = re.compile(r"^/\* -{10,} (.+?) \*/$")


def page() -> str:
    text = HEADER.read_text()
    comment, code = _first_comment(text)
    parts = [f"# The C header\n\n`#include <tarantella/tarantella.h>`. {_prose(comment)}\n"]
    for block in _blocks(code):
        section = SECTION.match(block)
        if section:
            parts.append(f"\n## {section[1][0].upper()}{section[1][1:]}\n")
            continue
        comment, declarations = _first_comment(block) if block.startswith("/*") else ("", block)
        name = re.search(r"\b(tnt_\w+)\s*\(", declarations) or re.search(r"\}\s*(tnt_\w+);", declarations)
        parts.append(f"\n### {name[1]}\n" if name else "")
        parts.append(f"\n{_prose(comment)}\n" if comment else "")
        parts.append(f"\n```c\n{declarations.strip()}\n```\n" if declarations.strip() else "")
    return "".join(parts)


def _first_comment(text: str) -> tuple[str, str]:
    end = text.index("*/") + 2
    return text[:end], text[end:].lstrip("\n")


def _blocks(code: str) -> list[str]:
    """Parts between empty lines, without the guards and what only a compiler needs."""
    public = code[code.index("typedef struct tnt_comm*") :]
    blocks = re.split(r"\n\s*\n", public)
    kept = [block.replace("TNT_EXPORT ", "").strip() for block in blocks]
    return [block for block in kept if block and not block.startswith(("#ifdef __cplusplus", "#endif", "}"))]


def _prose(comment: str) -> str:
    """A comment as Markdown: its lists stay lists."""
    lines = [re.sub(r"^(/\*| \*/?) ?", "", line).removesuffix("*/").rstrip() for line in comment.splitlines()]
    return "\n".join(re.sub(r"^ - ", "\n- ", _inline(line)) for line in lines).strip()


def _inline(line: str) -> str:
    """Names as code; what Markdown would take for its own stays as it is."""
    parts = NAME.split(line)
    plain = [re.sub(r"([*_])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    names = [f"`{name}`" for name in parts[1::2]] + [""]
    return "".join(text + name for text, name in zip(plain, names, strict=True))
