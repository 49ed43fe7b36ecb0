"""`tarantella --preload tensorflow,keras -- train.py`: modules that the launcher imports once for all ranks of this node.

The ranks are forks of the launcher (`forked.py`). They start in the time of one import and share its memory. Threads and
devices do not survive a fork, so the modules must not create any.
"""

import ast
import gc
import importlib
import os
import secrets
import site
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarantella import tensorflow_import
from tarantella.launcher.base.mark import own_mark
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.start.forked import open_descriptors
from tarantella.launcher.start.main_program import search_for
from tarantella.launcher.start.own_program import own_program
from tarantella.variables import JOB, LAUNCHER, LAUNCHER_ADDED

FIXED_BY_IMPORT = (
    "KERAS_BACKEND",
    "KERAS_HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Variables that the interpreter, TensorFlow and Keras read only once, at their start or import."""


@dataclass(frozen=True)
class Preloaded:
    """The imported modules, and the environment at that time."""

    modules: tuple[str, ...]
    environment: Mapping[str, str]
    """The environment at the import."""
    descriptors: frozenset[int]
    """Files that the modules have opened."""

    def require(self, environment: Mapping[str, str]) -> None:
        """Raises UsageError if a rank with this environment would have imported something else."""
        for name in FIXED_BY_IMPORT:
            wanted, has = environment.get(name), self.environment.get(name)
            if wanted != has:
                raise UsageError(
                    f"--preload: {name} is {_shown(wanted)} for the ranks and was {_shown(has)} when {', '.join(self.modules)} "
                    "were imported, and nothing reads it later: start another launcher for it, or leave --preload out"
                )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)


_preloaded: Preloaded | None = None
_job: str | None = None
_added_variables: tuple[str, ...] = ()


def preloaded() -> Preloaded:
    """The modules that this process has imported. To be called after `load`."""
    assert _preloaded is not None
    return _preloaded


def job_name() -> str:
    """The name of this launcher's job, as the kernel shows it in the environments of its processes."""
    return _job or secrets.token_hex(8)


def restart_with(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Restarts this process with the environment that ranks get, unless that has been done. argv: the command line.

    Libraries read some variables when they are loaded. The kernel shows the environment that a program was started with, and
    by that `--cleanup` finds left-over processes (`mark.py`).
    """
    global _job, _added_variables
    if _preloaded is not None:
        return
    if os.environ.get(LAUNCHER) == own_mark():  # a process keeps its mark when it restarts itself
        _job, _added_variables = os.environ[JOB], (LAUNCHER_ADDED, *filter(None, os.environ[LAUNCHER_ADDED].split(",")))
        return
    own = {LAUNCHER: own_mark(), JOB: secrets.token_hex(8)}
    added = [name for name in (*environment, *own) if name not in os.environ]
    everything = {**os.environ, **environment, **own, LAUNCHER_ADDED: ",".join(added)}
    os.execve(sys.executable, own_program("cli", *argv), everything)


def load(modules: Sequence[str], program: Sequence[str]) -> None:
    """Imports the modules, which may lie where the program searches for its own, unless that has been done.

    Raises UsageError if one cannot be imported, or has created what does not survive a fork.
    """
    global _preloaded
    if _preloaded is None:
        search_for(program)
        tensorflow_import.uninstall()  # each rank installs it with its own environment
        before = open_descriptors()
        environment = dict(os.environ)
        for name in modules:
            _import(name)
        _require_no_devices()
        gc.collect()
        gc.freeze()  # garbage collection in a rank leaves these objects alone, so their memory stays shared
        _preloaded = Preloaded(tuple(modules), environment, open_descriptors() - before)
    for name in _added_variables:
        os.environ.pop(name, None)  # the launcher chooses them again at each start of the ranks
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        raise UsageError(f"--preload: {missing[0]} was not imported with {', '.join(_preloaded.modules)}")


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"--preload: cannot import {name!r}: {type(error).__name__}: {error}") from error


def _require_no_devices() -> None:
    """Raises UsageError if TensorFlow has started its thread pools and devices: then it refuses to change their number."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    threads = tensorflow.config.threading
    number = threads.get_inter_op_parallelism_threads()
    try:
        threads.set_inter_op_parallelism_threads(number + 1)
        threads.set_inter_op_parallelism_threads(number)
    except RuntimeError:
        raise UsageError(
            "--preload: a module has computed with TensorFlow when it was imported, so its threads and devices exist, and "
            "ranks cannot share them: preload modules that only define things"
        ) from None


# -------------------------------------------------------------------------------------------------- what a script imports first

# Where --preload names no modules they are found in the source, if nothing that the script does can depend on when TensorFlow
# is imported: it imports TensorFlow at its top, after nothing but modules of Python and NumPy, and sets none of the variables
# that TensorFlow and Keras read only then.


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
