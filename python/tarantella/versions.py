"""The versions of TensorFlow and Keras that Tarantella works with.

They stand once, in the extras of pyproject.toml, from which pip chooses them. The installed package has them as its metadata.
Which versions were tried together is in docs/versions.md. Older ones lack what Tarantella needs and are refused. Newer ones may
work: they get a warning.
"""

import functools
import logging
import re
import sys
from dataclasses import dataclass
from importlib import metadata

from tarantella.errors import UnsupportedError

logger = logging.getLogger("TNT_LIB")

NAMES = {"tensorflow": "TensorFlow", "keras": "Keras", "tf_keras": "tf_keras"}
"""The packages by the names under which they are imported, and what messages call them."""
PYTHON_3_12 = {"tf_keras": (2, 19)}
"""The first versions that work on Python 3.12 and newer: older ones give random.randint a float, which it refuses there."""
_REQUIREMENTS = {"tensorflow": "tensorflow-cpu", "keras": "keras", "tf_keras": "tf_keras"}
_RANGE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*\(?((?:[<>]=?[0-9.]+[,\s]*)+)\)?")


@dataclass(frozen=True)
class Supported:
    """The versions of a package: those from `first` on, before `end`."""

    package: str
    first: tuple[int, int]
    end: tuple[int, int]

    def __str__(self) -> str:
        first, end = (".".join(map(str, version)) for version in (self.first, self.end))
        return f"{first} or newer, before {end}"

    @property
    def install(self) -> str:
        """The command that installs one of them."""
        first, end = (".".join(map(str, version)) for version in (self.first, self.end))
        return f"pip install '{self.package}>={first},<{end}'"

    def is_too_old(self, version: str) -> bool:
        return number(version) < self.first

    def is_newer(self, version: str) -> bool:
        """Whether it came after those that were tried."""
        return number(version) >= self.end


@functools.cache
def supported(package: str) -> Supported:
    """The versions of ``tensorflow``, ``keras`` or ``tf_keras``."""
    for requirement in metadata.requires("tarantella") or ():
        found = _RANGE.match(requirement)
        if found and found.group(1).replace("-", "_") == _REQUIREMENTS[package].replace("-", "_"):
            limits = dict(re.findall(r"([<>]=?)([0-9.]+)", found.group(2)))
            return Supported(package, number(limits[">="]), number(limits["<"]))
    raise UnsupportedError(
        f"the metadata of this installation of Tarantella says nothing of {NAMES[package]}: install the package again"
    )


def number(version: str) -> tuple[int, int]:
    """Major and minor version; (0, 0) of a text that has none."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (int(found.group(1)), int(found.group(2) or 0)) if found else (0, 0)


@functools.cache
def check(package: str, version: str) -> None:
    """Refuses a version that is too old, and warns once of one that is newer than those that were tried.

    Raises:
        UnsupportedError: it is too old, or too old for this Python; the text says what to install.
    """
    promised = supported(package)
    if promised.is_too_old(version):
        raise UnsupportedError(
            f"{NAMES[package]} {version} is too old for this version of Tarantella, which works with {promised}: "
            f"{promised.install}"
        )
    if sys.version_info >= (3, 12) and number(version) < PYTHON_3_12.get(package, (0, 0)):
        first = ".".join(map(str, PYTHON_3_12[package]))
        raise UnsupportedError(
            f"{NAMES[package]} {version} does not work on Python {sys.version_info[0]}.{sys.version_info[1]}: install "
            f"{NAMES[package]} and TensorFlow {first} or newer, or take Python 3.11"
        )
    if promised.is_newer(version):
        logger.warning(
            "%s %s was never tried with this version of Tarantella, which was with %s", NAMES[package], version, promised
        )
