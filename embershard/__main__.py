"""`python -m embershard` is `embershard`."""

import sys

from embershard.cli import main

if __name__ == "__main__":
    sys.exit(main())
