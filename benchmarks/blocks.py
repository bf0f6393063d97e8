"""Blocks of any number of sides in turn, for benchmarks that read several figures off each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.harness import stream_limit

__all__ = ["interleaved"]

T = TypeVar("T")


def interleaved(runs: Sequence[Callable[[], T]], *, blocks: int) -> tuple[list[list[T]], float]:
    """A B C, C B A, A B C, ... after one warm-up block of each.

    Returns:
        ``results[side][block]``, and how far the machine's memory speed moved meanwhile, as a
        share.
    """
    probe = stream_limit()
    before = probe.measure()
    for run in runs:
        run()
    results: list[list[T]] = [[] for _ in runs]
    for block in range(blocks):
        order = list(zip(results, runs, strict=True))
        for into, run in order if block % 2 == 0 else reversed(order):
            into.append(run())
    return results, abs(probe.measure() / before - 1)
