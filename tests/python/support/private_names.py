"""Finds the private names of Keras and TensorFlow that a Python file uses, without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

INTERNAL = re.compile(r"(keras|tf_keras)\.src\b|tensorflow\.(python|compiler|core)\b")
PRIVATE = re.compile(r"_[a-zA-Z](\w*[a-zA-Z0-9])?|__internal__")

# of the standard library, where an underscore is no sign of privacy: os._exit, and what a namedtuple has
PUBLIC = {"_exit", "_replace", "_fields"}


def private_names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each use: an attribute, a string that names one, a keyword argument, or an internal module.

    An internal module that is imported is named with what is used of it, as ``keras.src.losses.loss.apply_mask`` is. A name
    is ours if it begins with ``_tnt``, if a class in the file has it, or if self, cls, super() or one of our modules is asked.
    """
    tree = ast.parse(text)
    ours = _defined(tree) | PUBLIC
    modules = _own_modules(tree)
    internal = _internal_modules(tree)
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            is_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            if owner in internal:
                used.add(owner)
                yield node.lineno, f"{internal[owner][1]}.{node.attr}"
            elif _is_private(node.attr, ours) and owner not in {"self", "cls"} | modules and not is_super:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private(node.value, ours):
            yield node.lineno, node.value
        elif isinstance(node, ast.keyword) and node.arg is not None and _is_private(node.arg, ours):
            yield node.value.lineno, node.arg
    yield from (found for name, found in internal.items() if name not in used)


def _is_private(name: str, ours: set[str]) -> bool:
    return PRIVATE.fullmatch(name) is not None and name not in ours and not name.startswith("_tnt")


def _defined(tree: ast.Module) -> set[str]:
    """The members of the classes that a file defines: methods, class attributes, and what is set on self."""
    members = [member for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for member in node.body]
    found = {member.name for member in members if isinstance(member, ast.FunctionDef)}
    targets = [target for m in members for target in getattr(m, "targets", [getattr(m, "target", None)])]
    found |= {target.id for target in targets if isinstance(target, ast.Name)}
    stored = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    return found | {node.attr for node in stored if ast.unparse(node.value) == "self"}


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, name in the file, and full name of what is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _internal_modules(tree: ast.Module) -> dict[str, tuple[int, str]]:
    return {name: (line, full) for line, name, full in _imports(tree) if INTERNAL.match(full)}


def _own_modules(tree: ast.Module) -> set[str]:
    return {name for _, name, full in _imports(tree) if full.startswith("tarantella.")}
