"""The program `embershard`, also as `python -m embershard`."""

import signal
import sys


def main() -> int:
    """Run the command line. Ctrl-C during its imports prints no traceback."""
    if sys.argv[1:2] == ["serve"]:
        # A SIGHUP during the imports would end the process. Blocked here, it is delivered to the
        # server, which reads its repository again.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        from embershard.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("embershard: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
