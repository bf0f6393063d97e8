"""Processes of a comparison: sides that speak the line protocol of ``child``, and servers."""

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
"""Of a block, unless it is given."""

END_SECONDS: Final = 10.0


class ChildEndedError(RuntimeError):
    """A child ended before it was ready, or instead of answering."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    target: Target
    process: int

    metrics: str = ""
    """URL of its metrics, if it has a metrics port."""

    folder: Path | None = None
    """Of its ``repository`` and ``control`` socket, if it has one."""

    others: tuple[int, ...] = ()
    """Further processes whose CPU time counts as the server's."""


@contextmanager
def child_process(
    command: Command,
    *,
    cores: tuple[int, ...] = (),
    environment: Mapping[str, str] | None = None,
    seconds: float = CHILD_SECONDS,
) -> Iterator[Block]:
    """A block of a child process that speaks the lines of ``child``; it ends with the context.
    ``cores``: empty: all. ``environment`` is added to this process's. ``seconds``: of a block,
    unless the block is told."""
    with _started(command, cores, environment, stdin=subprocess.PIPE) as process:
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)

        def read_line() -> str:
            if line := stdout.readline():
                return line.strip()
            raise ChildEndedError(f"{command}: ended with {process.wait()}, expected an answer")

        def block(asked_seconds: float | None) -> Figures:
            with suppress(BrokenPipeError):  # It has ended: nothing is read then.
                stdin.write(f"run {asked_seconds or seconds}\n")
                stdin.flush()
            figures: Figures = json.loads(read_line())
            return figures

        while read_line() != "ready":  # Libraries may print as they load.
            pass
        yield block


@contextmanager
def server_process(
    command: Command, *, cores: tuple[int, ...] = (), metrics: bool = False
) -> Iterator[Running]:
    """A server that prints ``serving ... on HOST:PORT``, and then, with ``metrics``, the URL of its
    metrics port; it ends with the context. ``cores``: empty: all."""
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
    """Ends with the context: with the end of its input, or else by SIGTERM."""
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
    """Tells a process to end, by the end of its input if that is ours, and kills it later."""
    if process.stdin is None:
        process.terminate()
    else:
        with suppress(BrokenPipeError):  # It has ended.
            process.stdin.close()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
