"""The C++ programs of ``cpp/``, and the limits that one of them measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.children import ROOT, ChildEndedError, child_side, limit_of
from benchmarks.watch import Limit

__all__ = ["NOT_ON_THIS_MACHINE", "machine_limit", "program"]

NOT_ON_THIS_MACHINE = 3
"""Status of ``limits`` where the processor lacks the instructions."""


def program(name: str) -> Path:
    """Where a program lies.

    Raises:
        FileNotFoundError: it is not built.
    """
    path = ROOT / "build" / "benchmarks" / "programs" / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; `make benchmark-programs` builds it")
    return path


@contextmanager
def machine_limit(
    name: str, arguments: Sequence[str], *, threads: int, scale: float = 1.0
) -> Iterator[Limit | None]:
    """What that many cores can do together. None where the processor lacks the instructions.

    Args:
        name: how the row calls it.
        arguments: of the program ``limits``.
        threads: processes, one on each of the first cores.
        scale: multiplies the program's units into the row's.
    """
    command: list[str | Path] = [program("limits"), *arguments]
    with ExitStack() as stack:
        try:
            side = stack.enter_context(
                child_side(name, command, cores=[{core} for core in range(threads)], scale=scale)
            )
        except ChildEndedError as error:
            if error.status != NOT_ON_THIS_MACHINE:
                raise
            yield None
        else:
            yield limit_of(side)
