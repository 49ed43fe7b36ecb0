"""Prints the requirements of pyproject.toml, one per line: `requirements.py EXTRA...` (build needs included).

So that tools/setup can install the large things once and the package itself by itself, with no second list of them.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip brings the same module along
    from pip._vendor import tomli as tomllib

project_file = Path(__file__).resolve().parent.parent / "pyproject.toml"
settings = tomllib.loads(project_file.read_text())
project = settings["project"]
wanted = [*settings["build-system"]["requires"], *project["dependencies"]]
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
print("\n".join(wanted))
