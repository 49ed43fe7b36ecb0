"""What is installed: where the pages are, and in one sentence why a broken installation cannot be imported.

Python and the loader name a file or a symbol only.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

REMEDY = "python -m pip install --force-reinstall tarantella"


def page(name: str) -> str:
    """Where a page of the documentation lies, for messages: in the installed package, else in a checkout."""
    installed = Path(__file__).parent / "docs" / name
    return str(installed) if installed.is_file() else f"docs/{name}"


def why_not(error: ImportError, folder: str) -> str:
    """The sentence for an extension module in this folder that could not be imported."""
    there = sorted(file.name for file in Path(folder).glob("_native*.so"))
    if not there:
        reason = "it has no extension module (_native)"
    elif not {file[file.index(".") :] for file in there}.intersection(EXTENSION_SUFFIXES):
        reason = f"it was built for another Python ({', '.join(there)})"
    else:
        reason = str(error)
    python = ".".join(map(str, sys.version_info[:2]))
    return f"the installation of Tarantella in {folder} does not work on Python {python}: {reason}: {REMEDY}"
