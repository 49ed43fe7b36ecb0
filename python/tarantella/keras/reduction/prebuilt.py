"""Names the file that tells TensorFlow's stream after the headers it was compiled with. `tools/wheels` uses this, too.

Needs neither TensorFlow nor the rest of the package.
"""

import hashlib
import platform
from pathlib import Path

HEADERS = (
    "tensorflow/core/framework/op_kernel.h",
    "tensorflow/core/framework/device_base.h",
    "xla/stream_executor/stream.h",
)
"""The headers that say where the stream is. TensorFlows in which they are equal can take the same file."""


def name(include: Path, source: Path) -> str:
    """The name of the library for a TensorFlow with its headers in include, made of our source. Raises OSError."""
    digest = hashlib.sha256()
    for file in (source, *(include / header for header in HEADERS)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return f"gpu_stream-{platform.machine()}-{digest.hexdigest()[:16]}.so"
