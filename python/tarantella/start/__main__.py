"""`python .../tarantella/start/__main__.py MODULE ARGS`: runs the `main` of a module of this package in a new interpreter.

`python -m` would search the current folder first: a `selectors.py` there would be run in place of the standard library's. The
option against that, -P, is not in Python 3.10. A file that is run has its own folder searched first, and there is no module in
this one.
"""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    package = str(Path(__file__).parents[2])
    if package not in sys.path:  # who started this may have changed its own search path
        sys.path.append(package)
    del sys.argv[0]
    sys.exit(importlib.import_module(sys.argv[0]).main(sys.argv[1:]))
