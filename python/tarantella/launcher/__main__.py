"""`python -m tarantella.launcher`: the same as the console script `tarantella`."""

import sys

from tarantella.launcher.cli import main

if __name__ == "__main__":
    sys.exit(main())
