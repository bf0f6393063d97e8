"""A pod: an init container, a watch and a server over a repository of their own, and its load."""

import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embershard.client import Client
from embershard.errors import EmbershardError
from tests.cli.running import END_SECONDS, Serving, run, start_server
from tests.fetch.watching import WatchProcess
from tests.serving.versions import STEP

INTERVAL_SECONDS = 2


@dataclass
class ServerProcess(Serving):
    is_killed: bool = False
    """Set before it is: only then may a request fail."""

    @property
    def default(self) -> int:
        """The version that it said it serves."""
        return int(self.line.split()[2])


@dataclass
class Pod:
    """Processes as in `docker/kubernetes/server.yaml`. `load` sends requests while one serves."""

    url: str
    folder: Path
    failed: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """Versions, in the order of the answers."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.repository, self.socket = self.folder / "repository", self.folder / "socket"
        self.changed, self.is_over = threading.Condition(), False
        self.server: ServerProcess | None = None
        self.watch: WatchProcess | None = None

    def fetch(self) -> None:
        """The init container."""
        ended = run("fetch", self.url, self.repository)
        assert ended.returncode == 0, ended.stderr

    def start_watch(self) -> None:
        arguments = ("--watch", INTERVAL_SECONDS, "--control", self.socket)
        self.watch = WatchProcess(self.url, self.repository, self.folder / "watch.log", *arguments)

    def start_server(self) -> int:
        """The version that it serves from its first answer on."""
        arguments = (self.repository, "--threads", 1, "--control", self.socket)
        with (self.folder / "server.log").open("ab") as log:
            started = start_server(*arguments, stderr=log)
        server = ServerProcess(started.process, started.line)
        with self.changed:
            self.server = server
            self.changed.notify_all()
        return server.default

    def kill_server(self) -> None:
        server = self.server
        server.is_killed = True
        server.kill()

    def kill(self) -> None:
        """All of it, as a node that fails does."""
        self.watch.kill()
        self.kill_server()

    def stop(self) -> list[int]:
        """Exit codes after SIGTERM, and the end of the load."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        codes = [self.watch.stop()]
        return [*codes, self.server.stop(signal.SIGTERM)[0]]

    def load(self) -> None:
        """Requests one after the other, to each server in turn until it is killed."""
        server = None
        while True:
            with self.changed:
                self.changed.wait_for(lambda last=server: self.is_over or self.server is not last)
                server = self.server
            if self.is_over:
                return
            with Client(server.address, timeout_seconds=END_SECONDS, max_attempts=1) as client:
                self.send_until_killed(client, server)

    def send_until_killed(self, client: Client, server: ServerProcess) -> None:
        while not self.is_over:
            try:
                answer = client.predict("ranker", dense={"price": [5.0]}, sparse={"item": [[3]]})
            except EmbershardError as error:
                if not server.is_killed:
                    self.failed.append(f"{type(error).__name__}: {error}")
                    continue
                return
            if not np.isclose(answer["score"][0], STEP * answer.version, atol=STEP / 10):
                self.failed.append(f"version {answer.version} gave {answer['score'][0]}")
            self.answers.append(answer.version)
