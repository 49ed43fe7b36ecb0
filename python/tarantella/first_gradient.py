"""The notice of a rank that it trains: its launcher then knows what it means if no rank ever joins the job.

A script that knows nothing of Tarantella trains one model on each rank, and nothing is synchronised. A gradient of TensorFlow's
tape tells a training, `fit` included, from a script that only prints or predicts.

Nothing of this package is imported here: a rank's interpreter runs this file when it starts (`start/rank/sitecustomize.py`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

NOTICE = b"trains"
"""The datagram to the launcher's socket for joining."""


def install() -> None:
    """Sends the notice before the first gradient of this process, a rank of our launcher, and only once."""
    if "tensorflow" in sys.modules:
        _watch(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, AfterTensorFlow(_watch))


def _watch(tf: Any) -> None:
    run_before(tf, _tell)


def run_before(tf: Any, action: Callable[[], None], name: str = "gradient") -> Callable[..., Any]:
    """Runs the action before the next call of a tape's method. Returns what stands in the method's place until then."""
    original = getattr(tf.GradientTape, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(tf.GradientTape, name) is method:
            setattr(tf.GradientTape, name, original)
        action()
        return original(self, *args, **kwargs)

    setattr(tf.GradientTape, name, method)
    return method


@functools.cache
def _tell() -> None:
    address = f"\0tarantella-joined-{os.environ.get('TNT_INTERNAL_LAUNCHER', '')}"  # as environment.join_address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice, contextlib.suppress(OSError):  # nobody listens
        notice.sendto(NOTICE, socket.MSG_DONTWAIT, address)


class AfterTensorFlow(importlib.abc.MetaPathFinder):
    """Lets the other finders import TensorFlow, then runs an action on it."""

    def __init__(self, action: Callable[[Any], None]) -> None:
        self._action = action

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            self._action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
