"""What a script imports before anything else, read from its source: the modules that the launcher may import for all ranks.

`--preload` names such modules. Without it they are found here, where nothing that the script does can depend on when TensorFlow
is imported: the script imports it at its top, after nothing but modules of Python and NumPy, and sets none of the variables
that TensorFlow and Keras read only then.
"""

from __future__ import annotations

import ast
import os
import site
import sys
from collections.abc import Iterator

from tarantella.launcher.start.preload import FIXED_BY_IMPORT

HARMLESS = {*sys.stdlib_module_names, "numpy"}
"""They read none of those variables, and TensorFlow may be imported before them."""
OURS = ("tarantella", "horovod")
OUR_MODULE = "tarantella.keras.model"


def preloadable(script: str) -> tuple[str, ...]:
    """The modules to import for this script before ranks are forked; none if they shall import all themselves."""
    try:
        with open(script, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):  # a rank will say what is wrong with it
        return ()
    if any(isinstance(node, ast.Constant) and node.value in FIXED_BY_IMPORT for node in ast.walk(tree)):
        return ()
    folder, found = os.path.dirname(os.path.realpath(script)), []
    for name in _first_imports(tree):
        if _is_in(folder, name):
            break
        if name in ("tensorflow", "keras", *OURS):
            found.append(name)
        elif name not in HARMLESS:
            break
    if not {"tensorflow", "keras"} & set(found) or _has_plug_ins():
        return ()
    ours = (OUR_MODULE,) if set(OURS) & set(found) else ()
    return ("tensorflow", *(["keras"] if "keras" in found else []), *ours)


def _first_imports(tree: ast.Module) -> Iterator[str]:
    """The packages that the first statements import, up to the first one that does something else."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module is not None:
            yield statement.module.partition(".")[0]
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):  # no docstring
            return


def _has_plug_ins() -> bool:
    """Whether TensorFlow's import loads devices of others, which may start threads then. It looks where TensorFlow does."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *(place for place in sys.path if "site-packages" in place)]
    return any(os.path.isdir(os.path.join(place, "tensorflow-plugins")) for place in places)


def _is_in(folder: str, name: str) -> bool:
    """Whether the script's folder has a module of this name, which may do anything."""
    path = os.path.join(folder, name)
    return os.path.isdir(path) or os.path.exists(f"{path}.py")
