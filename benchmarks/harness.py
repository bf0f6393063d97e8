"""Compares two ways of doing one thing on a noisy machine.

Blocks of the two alternate A B B A, so that drift hits both; each neighbouring pair gives one
ratio, and the median of the ratios is quoted with a bootstrap interval. The limit that the row is
held against is measured before and after: if it moved by more than 15 %, the row is void.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "Limit",
    "Row",
    "Side",
    "Work",
    "compare",
    "interval",
    "loop",
    "paired_row",
    "pinned",
    "stream_limit",
]

PAIRS = 16
BLOCK_SECONDS = 0.4
MOVED_MAX = 0.15
RESAMPLES = 2000

STREAM_BYTES = 128 << 20
STREAM_PASSES = 8


class Work(NamedTuple):
    """What one block did."""

    units: float
    seconds: float
    """Of the clock; of a processor where the row's unit says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way of doing it, in this process or in another one."""

    name: str

    block: Callable[[float], Work]
    """Works for about so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the machine can do at best."""

    name: str

    measure: Callable[[], float]
    """In the row's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the results: a figure, what it is compared with, and what the machine allows."""

    name: str
    """``<benchmark>/<row>``, the same in every run."""

    what: str
    """The workload, in words; markdown."""

    unit: str
    """Of all values of the row, as in ``examples/s``."""

    ours: str
    """What the first value belongs to."""

    value: float
    """Median over blocks."""

    spread: float | None = None
    """Interquartile range of the blocks over their median."""

    theirs: str = ""
    """What it is compared with; empty if with nothing."""

    their_value: float | None = None
    their_spread: float | None = None

    ratio: float | None = None
    """Median of the paired ratios ours / theirs."""

    low: float | None = None
    """Lower end of the bootstrap 95 % interval of ``ratio``."""

    high: float | None = None

    limit: float | None = None
    """Median of the limit before and after."""

    limit_name: str = ""

    moved: float | None = None
    """How far the limit, or the machine's memory speed, moved during the run, as a share."""

    lower_is_better: bool = False
    note: str = ""

    seconds: float = 0.0
    """What the row took to measure."""

    @property
    def void(self) -> bool:
        return self.moved is not None and self.moved > MOVED_MAX

    @property
    def limit_share(self) -> float | None:
        return self.value / self.limit if self.limit else None


def loop(name: str, run: Callable[[], float]) -> Side:
    """A side in this process. ``run`` does some of the work and returns how many units of it."""

    def block(seconds: float) -> Work:
        done, started = 0.0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            done += run()
        return Work(done, passed)

    return Side(name=name, block=block)


def compare(
    name: str,
    what: str,
    unit: str,
    *,
    ours: Side,
    theirs: Side | None = None,
    limit: Limit | None = None,
    note: str = "",
    pairs: int = PAIRS,
    block_seconds: float = BLOCK_SECONDS,
) -> Row:
    """Runs both sides, interleaved, after one warm-up block each.

    Args:
        name, what, unit, note: as in ``Row``; values are units a second.
        theirs: None: our side alone, beside the limit.
        limit: in the row's unit. Without one the row has no limit, and memory speed tells whether
            the machine moved.
    """
    started = time.perf_counter()
    probe = limit or stream_limit()
    before = probe.measure()
    sides = [ours] if theirs is None else [ours, theirs]
    for side in sides:
        side.block(block_seconds)
    rates: list[list[float]] = [[] for _ in sides]
    for pair in range(pairs):
        order = list(zip(rates, sides, strict=True))
        for into, side in order if pair % 2 == 0 else reversed(order):
            work = side.block(block_seconds)
            into.append(work.units / work.seconds)
    after = probe.measure()
    return paired_row(
        name,
        what,
        unit,
        ours=ours.name,
        values=rates[0],
        theirs=theirs.name if theirs else "",
        their_values=rates[1] if theirs else (),
        limit=(before, after) if limit else None,
        limit_name=limit.name if limit else "",
        moved=abs(after / before - 1),
        note=note,
        seconds=time.perf_counter() - started,
    )


def paired_row(
    name: str,
    what: str,
    unit: str,
    *,
    ours: str,
    values: Sequence[float],
    theirs: str = "",
    their_values: Sequence[float] = (),
    limit: tuple[float, float] | None = None,
    limit_name: str = "",
    moved: float | None = None,
    lower_is_better: bool = False,
    note: str = "",
    seconds: float = 0.0,
) -> Row:
    """A row of what was measured in blocks, ``values[i]`` beside ``their_values[i]``.

    Args:
        their_values: as many as ``values``, or none.
        limit: before and after.
        moved: taken from ``limit`` if None.
    """
    low = high = ratio = None
    if their_values:
        ratios = [mine / other for mine, other in zip(values, their_values, strict=True)]
        ratio = float(np.median(ratios))
        low, high = interval(ratios)
    if moved is None and limit:
        moved = abs(limit[1] / limit[0] - 1)
    return Row(
        name=name,
        what=what,
        unit=unit,
        ours=ours,
        value=float(np.median(values)),
        spread=_spread(values),
        theirs=theirs,
        their_value=float(np.median(their_values)) if their_values else None,
        their_spread=_spread(their_values) if their_values else None,
        ratio=ratio,
        low=low,
        high=high,
        limit=float(np.median(limit)) if limit else None,
        limit_name=limit_name,
        moved=moved,
        lower_is_better=lower_is_better,
        note=note,
        seconds=seconds,
    )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median, always the same for the same ratios."""
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def stream_limit() -> Limit:
    """Bytes a second that one thread reads from memory with numpy: the median of a few passes."""
    stream = np.ones(STREAM_BYTES // 8)

    def measure() -> float:
        rates = []
        for _ in range(STREAM_PASSES):
            started = time.perf_counter()
            stream.sum()
            rates.append(STREAM_BYTES / (time.perf_counter() - started))
        return float(np.median(rates))

    return Limit(name="memory read by numpy", measure=measure)


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """This thread, and those it starts, run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _spread(values: Sequence[float]) -> float | None:
    """None of a single value."""
    if len(values) < 2:
        return None
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle) if middle else 0.0
