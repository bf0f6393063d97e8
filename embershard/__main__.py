"""The program `embershard`, also as `python -m embershard`."""

import sys


def main() -> int:
    """The command line, and a quiet end of what is interrupted before it is there."""
    try:
        from embershard.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("embershard: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
