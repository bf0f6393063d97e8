"""Servers in processes of their own, as a shell would start them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
END_SECONDS = 60


@dataclass
class Serving:
    process: subprocess.Popen
    line: str
    """What it printed first."""

    @property
    def address(self) -> str:
        return self.line.split()[-1]

    def stop(self, number: int) -> tuple[int, str, str]:
        """Sends a signal; gives exit code, the rest of standard output, and standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, out, err


@contextmanager
def serving(*arguments: object, stderr: int = subprocess.PIPE) -> Iterator[Serving]:
    """`embershard serve ... --port 0`; gone when the block ends."""
    command = [sys.executable, "-m", "embershard", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {process.communicate()[1]}")
        yield Serving(process, line)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess:
    """`embershard ...` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "embershard", *map(str, arguments)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
    )
