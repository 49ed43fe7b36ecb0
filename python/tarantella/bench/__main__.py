"""``python -m tarantella.bench ARGS``: becomes the program tnt-bench of this installation; ``plot`` stays in Python."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tarantella
from tarantella.bench import plot

USAGE_ERROR = 2


def executable() -> Path:
    """Where tnt-bench lies when it is installed: in the package."""
    return Path(tarantella.__file__).parent / "bin" / "tnt-bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns only for ``plot`` and when there is no tnt-bench."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["plot"]:
        return plot.main(words[1:])
    program = executable()
    try:
        os.execv(program, [str(program), *words])
    except OSError as error:
        hint = "" if program.exists() else "; this package was built without it (TNT_BUILD_BENCHMARKS=OFF, as tools/demo does)"
        print(f"tnt-bench: cannot start {program}: {error.strerror}{hint}", file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
