"""The exceptions that scripts catch."""

from typing import Any


class HorovodInternalError(RuntimeError):
    """A collective has failed. The text says which rank, which tensor, and what to do."""


class HostsUpdatedInterrupt(RuntimeError):
    """Ranks are about to join the job (`--elastic --replacements`). With `--max-restarts` nothing raises this.

    Attributes:
        skip_sync: whether the state is the same on all ranks.
    """

    def __init__(self, skip_sync: Any = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync
