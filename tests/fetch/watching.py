"""`embershard fetch --watch` in a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.running import END_SECONDS, ROOT


class WatchProcess:
    """Writes its events to a file. Killed when the block ends."""

    def __init__(self, url: str, repository: Path, log: Path, *arguments: object) -> None:
        self.log = log
        command = [sys.executable, "-m", "embershard", "fetch", url, repository, *arguments]
        with log.open("ab") as stream:
            self.process = subprocess.Popen(list(map(str, command)), cwd=ROOT, stderr=stream)

    def events(self) -> list[str]:
        """Lines, without their times."""
        return [line.split(maxsplit=1)[1] for line in self.log.read_text().splitlines()]

    def count(self, event: str) -> int:
        return sum(each.split()[0] == event for each in self.events())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=END_SECONDS)

    def stop(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=END_SECONDS)

    def __enter__(self) -> "WatchProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
