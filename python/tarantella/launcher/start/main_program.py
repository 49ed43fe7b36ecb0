"""Runs a Python program in this process as the interpreter runs it: a script, `-m` a module, `-c` a text, or `-`.

The interpreter's own start is imitated: `__main__`, `sys.argv`, `sys.path[0]`, and an uncaught exception whose traceback begins
in the program.
"""

import builtins
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any, NoReturn

_old_main: list[object] = []
"""The `__main__` of the launcher, which must not be deleted."""


def run(words: Sequence[str], source: bytes | None = None) -> NoReturn:
    """Runs what `python words` does, and ends with it. source: the program's text where the words begin with `-`."""
    search_for(words)
    first, *arguments = words
    module: Any = types.ModuleType("__main__")
    module.__builtins__ = builtins
    _old_main.append(sys.modules["__main__"])
    sys.modules["__main__"] = module
    if first == "-m":
        name, *arguments = arguments
        _run(lambda: _code_of_module(module, name), module, ["-m", *arguments])
    if first == "-c":
        text, *arguments = arguments
        _run(lambda: compile(text, "<string>", "exec", dont_inherit=True), module, ["-c", *arguments])
    if first == "-":
        module.__file__ = "<stdin>"
        _run(lambda: compile(source or b"", "<stdin>", "exec", dont_inherit=True), module, ["-", *arguments])
    module.__file__ = os.path.abspath(first)
    module.__loader__ = SourceFileLoader("__main__", module.__file__)
    module.__cached__ = None
    _run(lambda: _code_of_file(module.__file__, first), module, [first, *arguments])


def search_for(words: Sequence[str]) -> None:
    """Puts the folder in which `python words` searches for modules first in the search path, unless it runs with `-P`."""
    if getattr(sys.flags, "safe_path", False):  # since Python 3.11
        return
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
    elif words[0] in ("-c", "-"):
        sys.path[0] = ""
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(words[0]))


def _run(code: Callable[[], types.CodeType], module: types.ModuleType, argv: list[str]) -> NoReturn:
    sys.argv[:] = argv
    try:
        exec(code(), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):  # the interpreter then ends by SIGINT; the traceback has been shown
            sys.excepthook = lambda *_: None
            raise
        sys.exit(1)
    sys.exit(0)


def _code_of_file(path: str, shown: str) -> types.CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), shown, "exec", dont_inherit=True)


def _code_of_module(module: Any, name: str) -> types.CodeType:
    """The code of a module, or of the `__main__` of a package. Exits where there is none, with the interpreter's words."""
    spec = _find(name)
    package = spec.submodule_search_locations is not None
    if package:
        spec = _find(f"{name}.__main__", f"; {name!r} is a package and cannot be directly executed")
    code: types.CodeType | None = getattr(spec.loader, "get_code", lambda _: None)(spec.name)
    if code is None:
        _refuse(f"No code object available for {name}")
    module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
    module.__file__, module.__cached__ = spec.origin, spec.cached
    sys.argv[0] = str(spec.origin)
    return code


def _find(name: str, hint: str = "") -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)  # imports the packages that the module is in
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # a package that imports a missing module
            raise
        spec = None
    if spec is None:
        _refuse(f"No module named {name}{hint}")
    return spec


def _refuse(text: str) -> NoReturn:
    sys.exit(f"{sys.executable}: {text}")
