"""The interpreter of a rank runs this before its script: an interrupt is silent from then on, and a first gradient is told.

Else Ctrl-C in the seconds of TensorFlow's import would show its frames. The launcher puts this folder first into PYTHONPATH. It
is taken out again here, and the `sitecustomize` of the environment, which this one has hidden, is imported. An interpreter that
leaves PYTHONPATH alone (`python -E`, `-I`) shows its frames.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_this = sys.modules[__name__]
_folder = os.path.dirname(os.path.abspath(__file__))


def _not_here(paths: list[str]) -> list[str]:
    return [path for path in paths if path != _folder]


sys.path[:] = _not_here(sys.path)
os.environ["PYTHONPATH"] = os.pathsep.join(_not_here(os.environ.get("PYTHONPATH", "").split(os.pathsep)))
if not os.environ["PYTHONPATH"]:
    del os.environ["PYTHONPATH"]

for _name in ("interrupts", "first_gradient"):
    _path = os.path.join(_folder, os.pardir, os.pardir, f"{_name}.py")
    _names: dict[str, Any] = {"__name__": _name}
    with open(_path, "rb") as _file:
        exec(compile(_file.read(), _path, "exec"), _names)
    _names["install"]()

del sys.modules[__name__]
try:
    importlib.import_module(__name__)
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, _this)
