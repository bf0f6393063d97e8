"""The program `embershard`, also as `python -m embershard`."""

import signal
import sys


def main() -> int:
    """The command line, and a quiet end of what is interrupted before it is there."""
    if sys.argv[1:2] == ["serve"]:
        # Before the imports: a reload right after the start would end the server. The signal waits
        # until the server takes it, as a request to rescan.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        from embershard.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("embershard: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
