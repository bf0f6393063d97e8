"""A watch that polls when a test says so, and `embershard fetch --watch` in its own process."""

import signal
import subprocess
import sys
from pathlib import Path

from embershard.errors import UnavailableError
from embershard.fetch import Selection, Source, Watch, WatchOptions
from tests.cli.running import END_SECONDS, ROOT


class Watched:
    """A watch of a folder or URL, the server that it tells, and the events that it writes."""

    def __init__(self, far, here, *, selection=None, keep=None):
        self.orders, self.events, self.serving = [], [], {}
        self.error = None
        options = WatchOptions(selection=selection or Selection(model="small"), keep=keep)
        url = far if isinstance(far, str) else far.as_uri()
        source = Source(url, pause=lambda _: None)
        self.watch = Watch(source, here, options, order=self.order, write=self.write)

    def order(self, name):
        self.orders.append(name)
        if isinstance(self.error, UnavailableError) or (self.error and name == "refresh"):
            raise self.error
        index = [
            {
                "model": "small",
                "version": version,
                "state": state,
                "labels": ["stable"] if state == "ready" else [],
                "is_default": state == "ready",
            }
            for version, state in self.serving.items()
        ]
        return {"seconds": 0.5, "index": index}

    def write(self, event, fields):
        self.events.append((event, dict(fields)))

    def poll(self):
        """The names of the events of this poll alone."""
        self.events.clear()
        self.orders.clear()
        self.watch.poll()
        return [event for event, _ in self.events]


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
        return sum(item.split()[0] == event for item in self.events())

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
