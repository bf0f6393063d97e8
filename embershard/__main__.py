"""`python -m embershard` is `embershard`."""

import sys

from embershard.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
