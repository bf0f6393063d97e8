"""Processes of a comparison: sides that speak the line protocol of ``child``, and servers."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    cores: set[int] | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = CHILD_SECONDS,
) -> Iterator[Block]:
    """A block of a child process that speaks the lines of ``child``; it ends with the context.
    ``cores``: None: all. ``environment`` is added to this process's. ``seconds``: of a block,
    unless the block is told."""
    process = subprocess.Popen(
        command.arguments,
        cwd=command.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    stdin = _pipe(process.stdin)

    def block(asked_seconds: float | None) -> Figures:
        try:
            stdin.write(f"run {asked_seconds or seconds}\n")
            stdin.flush()
        except BrokenPipeError:
            raise _ended(command, process) from None
        figures: Figures = json.loads(_line(command, process))
        return figures

    try:
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)
        while _line(command, process) != "ready":  # Libraries may print as they load.
            pass
        yield block
    finally:
        stdin.close()
        _end(process)


@contextmanager
def server_process(
    command: Command, *, cores: set[int] | None = None, metrics: bool = False
) -> Iterator[Running]:
    """A server that prints ``serving ... on HOST:PORT``, and then, with ``metrics``, the URL of its
    metrics port; it ends with the context. ``cores``: None: all."""
    process = subprocess.Popen(
        command.arguments, cwd=command.folder, stdout=subprocess.PIPE, text=True
    )
    try:
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)
        stdout = _pipe(process.stdout)
        line = stdout.readline()
        address = SERVING.match(line)
        if address is None:
            raise RuntimeError(f"{command}: expected `serving ... on HOST:PORT`, got {line!r}")
        url = f"{stdout.readline().split()[-1]}metrics" if metrics else ""
        yield Running(find_target(address["address"]), process.pid, url)
    finally:
        process.terminate()
        _end(process)


def _line(command: Command, process: subprocess.Popen[str]) -> str:
    line = _pipe(process.stdout).readline()
    if not line:
        raise _ended(command, process)
    return line.strip()


def _ended(command: Command, process: subprocess.Popen[str]) -> ChildEndedError:
    status = process.wait()
    return ChildEndedError(f"{command}: ended with {status}, expected an answer")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _end(process: subprocess.Popen[str]) -> None:
    """Waits for a process that was told to end, and kills it after ten seconds."""
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _pipe(process.stdout).close()
