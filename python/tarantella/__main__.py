"""`python -m tarantella`: the same as the console script `tarantella`."""

import sys

from tarantella.cli import main

if __name__ == "__main__":
    sys.exit(main())
