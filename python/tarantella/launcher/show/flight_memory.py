"""The memory of a rank's flight record. The launcher makes it, so it can be read when the rank is stopped or has died."""

import fcntl
import os

from tarantella import reporting
from tarantella.flight import record
from tarantella.flight.record import Record


class FlightMemory:
    """Memory for one rank, zero until it joins."""

    def __init__(self) -> None:
        """Raises OSError if there can be none, as under a limit on file sizes."""
        self.descriptor = os.memfd_create("tarantella-flight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, record.BYTES)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except OSError:
            self.close()
            raise

    def name(self) -> str:
        """Its name in the environment of the rank."""
        return reporting.named(self.descriptor)

    def path(self) -> str:
        """Where other processes of this user find it while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def read(self) -> Record | None:
        """The rank's record so far; None if it has not joined. Raises UnreadableRecordError if the rank has spoilt it."""
        return record.read(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)
