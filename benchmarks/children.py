"""Sides in processes of their own: peers that have their own environment, C++ programs, and
several processes at a time where an operation has one thread."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from benchmarks.harness import Side, Work
from benchmarks.watch import Limit

__all__ = ["PEER_PYTHON", "ROOT", "ChildEndedError", "child_side", "limit_of"]

ROOT = Path(__file__).resolve().parent.parent
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


class ChildEndedError(RuntimeError):
    """A child ended before it was ready, or instead of answering."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name}: the process ended with {status}, expected an answer")
        self.status = status


@contextmanager
def child_side(
    name: str,
    command: Sequence[str | Path],
    *,
    cores: Sequence[set[int]] = (),
    environment: Mapping[str, str] | None = None,
    scale: float = 1.0,
) -> Iterator[Side]:
    """Starts a program that speaks the lines of ``child``, and ends it afterwards.

    Args:
        command: runs in the root of the repository, so ``python -m benchmarks...`` works.
        cores: one process for each entry, pinned to its cores; all of them work at the same time,
            and their units are added up. None: one process, pinned to nothing.
        environment: added to this process's.
        scale: multiplies the program's units into the row's.

    Raises:
        ChildEndedError: the program ended before it was ready, or instead of answering.
    """
    with ExitStack() as stack:
        processes = []
        wanted: Sequence[set[int] | None] = cores or [None]
        for each in wanted:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )
            stack.callback(_end, process)
            if each is not None:
                os.sched_setaffinity(process.pid, each)
            processes.append(process)
        for process in processes:
            while _line(name, process) != "ready":  # what libraries print as they load
                pass

        def block(seconds: float) -> Work:
            for process in processes:
                _say(name, process, f"run {seconds}")
            done = [[float(word) for word in _line(name, each).split()] for each in processes]
            return Work(
                sum(units for units, _ in done) * scale,
                max(passed for _, passed in done),
            )

        yield Side(name=name, block=block)


def limit_of(side: Side, *, seconds: float = 0.3, blocks: int = 4) -> Limit:
    """The best of a few blocks of a side that does nothing but what the machine must."""

    def measure() -> float:
        works = [side.block(seconds) for _ in range(blocks)]
        return max(work.units / work.seconds for work in works)

    return Limit(name=side.name, measure=measure)


def _say(name: str, process: subprocess.Popen[str], line: str) -> None:
    stdin = _pipe(process.stdin)
    try:
        stdin.write(f"{line}\n")
        stdin.flush()
    except BrokenPipeError:
        raise ChildEndedError(name, process.wait()) from None


def _line(name: str, process: subprocess.Popen[str]) -> str:
    line = _pipe(process.stdout).readline()
    if not line:
        raise ChildEndedError(name, process.wait())
    return line.strip()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _end(process: subprocess.Popen[str]) -> None:
    """Its input ends, and so does it; what still runs after ten seconds is killed."""
    _pipe(process.stdin).close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _pipe(process.stdout).close()
