"""Servers in processes of their own, as a shell would start them."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
END_SECONDS = 60


EMBERSHARD = (sys.executable, "-m", "embershard")


@dataclass
class Serving:
    process: subprocess.Popen
    line: str
    """Its first line of output: ``serving MODEL VERSION, ... on ADDRESS``."""
    metrics: str = ""
    """URL of its metrics port, if it has one."""

    @property
    def address(self) -> str:
        return self.line.split()[-1]

    def stop(self, number: int) -> tuple[int, str, str]:
        """Sends a signal; gives exit code, the rest of standard output, and standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """Has no effect on a process that has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=END_SECONDS)


def start_server(
    *arguments: object, command: Sequence[object] = (*EMBERSHARD, "serve"), **kwargs: Any
) -> Serving:
    """`embershard serve ... --port 0`, which listens.

    Args:
        command: what stands before the arguments.
        kwargs: arguments of `subprocess.Popen`.
    """
    whole = [*map(str, (*command, *arguments)), "--port", "0"]
    kwargs = {"cwd": ROOT, "stderr": subprocess.PIPE, **kwargs}
    process = subprocess.Popen(whole, stdout=subprocess.PIPE, text=True, **kwargs)
    lines = [process.stdout.readline() for _ in range(1 + ("--metrics-port" in whole))]
    if not all(lines):
        raise AssertionError(f"the server did not start: {process.communicate()[1]}")
    return Serving(process, lines[0], *(line.split()[-1] for line in lines[1:]))


@contextmanager
def serving(*arguments: object, **kwargs: Any) -> Iterator[Serving]:
    """Like `start_server`, but kills the server when the block ends."""
    server = start_server(*arguments, **kwargs)
    try:
        yield server
    finally:
        server.kill()


def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess:
    """`embershard ...` to its end."""
    return subprocess.run(
        [*EMBERSHARD, *map(str, arguments)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
    )
