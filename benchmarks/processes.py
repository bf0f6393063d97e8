"""Child processes of a comparison: sides with the line protocol of ``child``, and servers."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from benchmarks.checkout import Command
from benchmarks.harness import Block, Figures
from embershard.bench.target import Target, find_target

SERVING: Final = re.compile(r"^serving .*?\bon (?P<address>[^ ,]+:\d+)")
CHILD_SECONDS: Final = 0.4

END_SECONDS: Final = 10.0


class ChildEndedError(RuntimeError):
    """A child ended before it was ready, or instead of answering."""


@dataclass(frozen=True, slots=True)
class Running:
    target: Target
    process: int

    metrics: str = ""

    folder: Path | None = None
    """Folder with ``repository`` and the socket ``control``, or None."""

    others: tuple[int, ...] = ()
    """Ids of further processes that belong to the server."""


@contextmanager
def child_process(
    command: Command,
    *,
    cores: tuple[int, ...] = (),
    environment: Mapping[str, str] | None = None,
    seconds: float = CHILD_SECONDS,
) -> Iterator[Block]:
    """Start a child with the line protocol of ``child``, which ends with the context. Empty
    ``cores`` are all. ``seconds`` is the default length of a block."""
    with _started(command, cores, environment, stdin=subprocess.PIPE) as process:
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)

        def read_line() -> str:
            if line := stdout.readline():
                return line.strip()
            raise ChildEndedError(
                f"{command}: expected an answer, but it ended with exit code {process.wait()}"
            )

        def block(block_seconds: float | None) -> Figures:
            with suppress(BrokenPipeError):  # The child has ended, which `read_line` reports.
                stdin.write(f"run {block_seconds or seconds}\n")
                stdin.flush()
            figures: Figures = json.loads(read_line())
            return figures

        while read_line() != "ready":  # Libraries may print other lines before.
            pass
        yield block


@contextmanager
def server_process(
    command: Command, *, cores: tuple[int, ...] = (), metrics: bool = False
) -> Iterator[Running]:
    """Start a server, which ends with the context. It must print ``serving ... on HOST:PORT`` and,
    with ``metrics``, a second line with the URL of its metrics port. No ``cores`` means all."""
    with _started(command, cores) as process:
        stdout = _pipe(process.stdout)
        line = stdout.readline()
        address = SERVING.match(line)
        if address is None:
            raise RuntimeError(f"{command}: expected `serving ... on HOST:PORT`, got {line!r}")
        url = f"{stdout.readline().split()[-1]}metrics" if metrics else ""
        yield Running(find_target(address["address"]), process.pid, url)


@contextmanager
def _started(
    command: Command,
    cores: tuple[int, ...],
    environment: Mapping[str, str] | None = None,
    *,
    stdin: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command.arguments,
        cwd=command.folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            if cores:
                os.sched_setaffinity(process.pid, cores)
            yield process
        finally:
            end(process, END_SECONDS)


def end(process: subprocess.Popen[str], seconds: float) -> None:
    """Close the input, or send SIGTERM if there is none. Kill the process after a timeout."""
    if process.stdin is None:
        process.terminate()
    else:
        with suppress(BrokenPipeError):  # The process has ended.
            process.stdin.close()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
