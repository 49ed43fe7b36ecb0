"""`horovod.runner`, whose functions start jobs: here `tarantella`, `tarantella horovodrun` and `tnt.launch` do."""

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(f"horovod.runner.{name}: not offered: start a job by tarantella horovodrun, a function by tnt.launch")
