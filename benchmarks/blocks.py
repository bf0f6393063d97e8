"""Blocks of any number of sides in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.watch import Limit, Watch

__all__ = ["interleaved"]

T = TypeVar("T")


def interleaved(
    runs: Sequence[Callable[[], T]],
    *,
    blocks: int,
    limit: Limit | None = None,
    warm_up: bool = True,
) -> tuple[list[list[T]], Watch]:
    """A B C, C B A, A B C, ... after one warm-up block of each.

    Args:
        runs: one block each.
        blocks: of each side.
        limit: watched meanwhile; see ``Watch``.
        warm_up: False where the sides have run before.

    Returns:
        ``results[side][block]``, and the watch over all of it.
    """
    results: list[list[T]] = [[] for _ in runs]
    with Watch(limit) as watch:
        for run in runs if warm_up else ():
            run()
        for block in range(blocks):
            order = list(zip(results, runs, strict=True))
            for into, run in order if block % 2 == 0 else reversed(order):
                into.append(run())
    return results, watch
