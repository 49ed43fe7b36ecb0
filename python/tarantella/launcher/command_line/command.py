"""The words after `--` on the command line: the program that every rank runs, checked before any rank exists.

A script, `-m` and a module, `-c` and a text, or `-` for a script from standard input are run by the interpreter that runs the
launcher, and so is what follows the word `python` or `python3`. Anything else is a program that runs itself.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tarantella.launcher.base.words import UsageError

EXAMPLE = "tarantella -n 4 -- train.py"
MODULE_EXAMPLE = "tarantella -n 4 -- -m package.train"
OWN_PYTHON = ("python", "python3")
PYTHON_LIKE = re.compile(r"(.*/)?(python|pypy)[0-9.]*")


@dataclass(frozen=True)
class Command:
    """A checked program."""

    words: tuple[str, ...]
    """Interpreter, script, arguments."""
    is_python: bool = False
    """Whether it is a Python program, of which the launcher expects that it imports tarantella."""
    program: tuple[str, ...] = ()
    """The words after the interpreter if that is the launcher's own, without options; a fork of the launcher can run them."""
    source: bytes | None = None
    """The script, if it came from standard input."""


def parse_command(words: Sequence[str], interpreter: str | None) -> Command:
    """Checks the words after `--`. interpreter: what --python-interpreter asks for. Raises UsageError."""
    first = words[0]
    if first in OWN_PYTHON:
        if interpreter is not None:
            raise UsageError(f"--python-interpreter and {first!r} after `--`: give one of them")
        options, program = split_python(words[1:])
        if not program:
            raise UsageError(f"{first!r} alone: name the script that it is to run, as in tarantella -n 4 -- python train.py")
        return _with_own_python(options, _checked_program(program))
    if first in ("-m", "-c", "-") and interpreter == "":
        raise UsageError(f"{first!r}: needs an interpreter, and --python-interpreter '' asks for none")
    if first == "-m" or first == "-" or (first == "-c" and not os.path.exists(first)):
        if interpreter is None:
            return _with_own_python([], _checked_program(words))
        return Command((*_interpreter(interpreter), *_checked_program(words, own=False)), True, source=_source(words))
    return _file(words, interpreter)


def split_python(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Python's options, and what follows them: a script, `-m` and a module, `-c` and a text, `-`, and the arguments."""
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        letters = "" if word.startswith("--") else word[1:]
        for at, letter in enumerate(letters):
            if letter in "mc":  # -um package is -u -m package
                options += [f"-{letters[:at]}"] * bool(at)
                return options, [f"-{letter}", *filter(None, [letters[at + 1 :]]), *rest]
            if letter in "WX":  # the rest of the word belongs to it, or the next word
                if at + 1 == len(letters) and rest:
                    word = f"{word}{rest.pop(0)}"
                break
        options.append(word)
    return options, rest


def _with_own_python(options: Sequence[str], program: Sequence[str]) -> Command:
    forkable = () if options or os.path.isdir(program[0]) else tuple(program)
    return Command((sys.executable, *options, *program), True, forkable, _source(program))


def _checked_program(words: Sequence[str], own: bool = True) -> list[str]:
    """Checks the words for an interpreter. own: whether it is the launcher's, which finds the same modules."""
    first, *arguments = words
    if first == "-m":
        _check_module(arguments[0] if arguments else "", own)
    elif first == "-c":
        if not arguments:
            raise UsageError("-c: give the text of the program after it")
    elif first != "-" and not os.path.exists(first):
        raise UsageError(f"script {first!r} does not exist")
    return [first, *arguments]


def _check_module(name: str, own: bool) -> None:
    if not name or name.startswith(("-", ".")) or "/" in name:
        raise UsageError(f"-m: {name!r} is not the name of a module: name one as in {MODULE_EXAMPLE}")
    if own and not module_may_exist(name):
        script = " (a script is started without -m)" if name.endswith(".py") else ""
        raise UsageError(f"-m: there is no module {name!r} in {os.getcwd()} or among the installed packages{script}")


def module_may_exist(name: str) -> bool:
    """False if the module certainly does not exist. Imports nothing, so a package that searches elsewhere is not asked."""
    sys.path.insert(0, os.getcwd())
    try:
        folders, parts = None, name.split(".")
        for number in range(1, len(parts) + 1):
            finders = (find for finder in sys.meta_path if (find := getattr(finder, "find_spec", None)) is not None)
            specs = (find(".".join(parts[:number]), folders) for find in finders)
            spec = next((spec for spec in specs if spec is not None), None)
            if spec is None:
                return False
            if spec.submodule_search_locations is None:
                return number == len(parts)
            folders = list(spec.submodule_search_locations)
    except (ImportError, KeyError, ValueError):  # a namespace inside of a namespace can be searched by an import only
        return True
    finally:
        del sys.path[0]
    return True


def _source(program: Sequence[str]) -> bytes | None:
    return read_standard_input() if program[0] == "-" else None


def read_standard_input() -> bytes:
    """A script from standard input. It can be read again, also by a program that replaces this one. Raises UsageError."""
    parts = []
    while part := os.read(0, 1 << 20):
        parts.append(part)
    text = b"".join(parts)
    if not text.strip():
        raise UsageError("-: standard input has no script: give one as in tarantella -n 4 -- - < train.py")
    descriptor = file_of(text)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    return text


def file_of(text: bytes) -> int:
    """A descriptor from which the text can be read."""
    descriptor = os.memfd_create("script")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _file(words: Sequence[str], interpreter: str | None) -> Command:
    """A script or a program in a file, or a program that PATH has."""
    script, *arguments = words
    if os.path.isdir(script):
        raise UsageError(f"script {script!r} is a directory")
    if not os.path.exists(script):
        if interpreter is None and os.sep not in script and not script.endswith(".py") and shutil.which(script):
            return Command(tuple(words), PYTHON_LIKE.fullmatch(script) is not None)
        hint = f" (a module is started by -m, as in {MODULE_EXAMPLE})" if module_like(script) else ""
        raise UsageError(f"script {script!r} does not exist{hint}")
    own = interpreter is None and script.endswith(".py")
    if not (own or interpreter) and not os.access(script, os.X_OK):
        raise UsageError(f"script {script!r} is not executable and no interpreter is to run it")
    if os.sep not in script:  # else one named "-c" were an option of the interpreter, and exec searched PATH
        script = script if (own or interpreter) and not script.startswith("-") else f"./{script}"
    if own:
        return _with_own_python([], [script, *arguments])
    if interpreter:
        return Command((*_interpreter(interpreter), script, *arguments), True)
    return Command((script, *arguments), script.endswith(".py") or PYTHON_LIKE.fullmatch(script) is not None)


def module_like(word: str) -> bool:
    return "." in word and not word.endswith(".py") and all(part.isidentifier() for part in word.split("."))


def _interpreter(text: str) -> list[str]:
    """A program, whatever its path looks like, or one with options of its own."""
    try:
        words = [text] if shutil.which(text) else shlex.split(text)
    except ValueError:  # a quotation that does not end
        words = [text]
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--python-interpreter: {(words or [text])[0]!r} is not a program that can be run")
    return words
