"""Compares two ways of doing one thing on a noisy machine.

Blocks of the two alternate A B B A, so that drift hits both; each neighbouring pair gives one
ratio, and the median of the ratios is quoted with a bootstrap interval. The limit that the row is
held against is measured before and after: if it moved by more than 15 %, the row is void.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.child import work_for
from benchmarks.watch import Limit, Watch

__all__ = [
    "About",
    "Blocks",
    "Row",
    "Series",
    "Side",
    "Work",
    "compare",
    "interval",
    "loop",
    "paired_row",
    "pinned",
]

MOVED_MAX = 0.15
RESAMPLES = 2000

INTERVAL_PAIRS = 10
"""Fewer say too little of the ratios that were not seen: the row gives their least and largest."""


class Work(NamedTuple):
    """What one block did."""

    units: float
    seconds: float
    """Of the clock; of a processor where the row's unit says so."""


class Blocks(NamedTuple):
    """How often each side works, and for how long."""

    pairs: int = 16
    seconds: float = 0.4


BLOCKS = Blocks()
"""Where a benchmark says nothing else."""


class Series(NamedTuple):
    """What one side gave, block by block."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a row says beside its figures; see ``Row``."""

    name: str
    what: str
    unit: str
    lower_is_better: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way of doing it, in this process or in another one."""

    name: str

    block: Callable[[float], Work]
    """Works for about so many seconds."""


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

    pairs: int = 1
    """Blocks of our side, each paired with one of theirs where there is one."""

    low: float | None = None
    """Lower end of the bootstrap 95 % interval of ``ratio``; of fewer than ``INTERVAL_PAIRS``
    pairs the least of their ratios."""

    high: float | None = None
    """Upper end; or the largest."""

    limit: float | None = None
    """Median of the limit before and after."""

    limit_name: str = ""

    moved: float
    """How far the limit, or where there is none the machine's memory speed, moved during the run,
    as a share."""

    lower_is_better: bool = False
    note: str = ""

    seconds: float = 0.0
    """What it took to measure the row, and others where one measurement gives several."""

    @property
    def void(self) -> bool:
        return self.moved > MOVED_MAX

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are of the bootstrap."""
        return self.pairs >= INTERVAL_PAIRS

    @property
    def limit_share(self) -> float | None:
        return self.value / self.limit if self.limit else None


def loop(name: str, run: Callable[[], float]) -> Side:
    """A side in this process. ``run`` does some of the work and returns how many units of it."""
    return Side(name=name, block=lambda seconds: Work(*work_for(seconds, run)))


def compare(
    about: About,
    *,
    ours: Side,
    theirs: Side | None = None,
    limit: Limit | None = None,
    blocks: Blocks = BLOCKS,
) -> Row:
    """Runs both sides, interleaved, after one warm-up block each.

    Args:
        about: values are units a second.
        theirs: None: our side alone, beside the limit.
        limit: in the row's unit. Without one the row has no limit, and memory speed tells whether
            the machine moved.
        blocks: of each side.
    """

    def rate(side: Side) -> float:
        work = side.block(blocks.seconds)
        return work.units / work.seconds

    sides = [ours] if theirs is None else [ours, theirs]
    rates, watch = interleaved(
        [partial(rate, side) for side in sides], blocks=blocks.pairs, limit=limit
    )
    series = [Series(side.name, values) for side, values in zip(sides, rates, strict=True)]
    return paired_row(about, *series, watch=watch)


def paired_row(about: About, ours: Series, theirs: Series | None = None, *, watch: Watch) -> Row:
    """A row of what was measured in blocks, each value of ours beside the one of theirs.

    Args:
        theirs: as many values as ours.
        watch: over all of it. Its limit, if it has one, is the row's, and in the row's unit.
    """
    low = high = ratio = None
    if theirs is not None:
        ratios = [mine / other for mine, other in zip(ours.values, theirs.values, strict=True)]
        ratio = float(np.median(ratios))
        low, high = interval(ratios)
    return Row(
        name=about.name,
        what=about.what,
        unit=about.unit,
        ours=ours.name,
        value=float(np.median(ours.values)),
        spread=_spread(ours.values),
        theirs=theirs.name if theirs else "",
        their_value=float(np.median(theirs.values)) if theirs else None,
        their_spread=_spread(theirs.values) if theirs else None,
        ratio=ratio,
        pairs=len(ours.values),
        low=low,
        high=high,
        limit=(watch.before + watch.after) / 2 if watch.limit else None,
        limit_name=watch.limit.name if watch.limit else "",
        moved=watch.moved,
        lower_is_better=about.lower_is_better,
        note=about.note,
        seconds=watch.seconds,
    )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median, always the same for the same ratios; of fewer than
    ``INTERVAL_PAIRS`` the least and the largest."""
    if len(ratios) < INTERVAL_PAIRS:
        return min(ratios), max(ratios)
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


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
