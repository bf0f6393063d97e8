"""Compares sides in interleaved blocks: two ways of doing one thing, or two checkouts.

Blocks of the sides alternate A B C, C B A, so that drift of the machine hits all of them. The
ratio of two sides is the median of the ratios of their neighbouring blocks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np

from benchmarks.checkout import THIS, Checkout
from benchmarks.statistics import (
    INTERVAL_PAIRS,
    NO_BOUND,
    Bound,
    Estimate,
    Values,
    lower_is_better,
    paired_ratio,
)

AGAINST_BOUND: Final = 0.97
"""A row fails if a rate of this checkout is wholly below so much of the other's."""

T = TypeVar("T")

Figures = Mapping[str, float]
"""What one block measured, by name, such as ``requests_per_second`` or ``p99_us``."""

Block = Callable[[float | None], Figures]
"""Runs one block. Its argument is the seconds to take; None: the side's own choice."""

Measured = dict[str, dict[str, Values]]
"""Values by side and figure."""


class Side(Protocol):
    """One way of doing it, as a row declares it."""

    @property
    def is_peer(self) -> bool:
        """Whether it is nothing of embershard's, and the same for every checkout."""

    def start(self, session: Session, checkout: Checkout) -> Block:
        """Starts what blocks need. The session ends it."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row: a figure of our side, alone or divided by that of another side."""

    name: str
    figure: str
    ours: str
    theirs: str = ""
    their_figure: str = ""
    """Empty: the same figure."""

    bound: Bound = NO_BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the results."""

    name: str
    """``<benchmark>/<row>``."""

    what: str
    figure: str
    ours: str
    values: Values
    theirs: str = ""
    their_values: Values | None = None
    bound: Bound = NO_BOUND
    notes: Mapping[str, float] = field(default_factory=dict)
    """Medians of the other figures of our side."""

    @property
    def estimate(self) -> Estimate | None:
        return None if self.their_values is None else paired_ratio(self.values, self.their_values)

    @property
    def judged(self) -> bool:
        """Whether there is an interval to judge the bound by."""
        return len(self.values) >= INTERVAL_PAIRS

    @property
    def failed(self) -> bool:
        estimate = self.estimate
        return estimate is not None and self.judged and self.bound.fails(estimate)


class Session:
    """What one comparison started, until it is over."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[Hashable, Any] = {}
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._folder))

    def enter(self, manager: AbstractContextManager[T]) -> T:
        """Enters a context that ends with the session."""
        return self._stack.enter_context(manager)

    def shared(self, key: Hashable, start: Callable[[], AbstractContextManager[T]]) -> T:
        """The same for the same key: equal declarations of a server share one process."""
        if key not in self._running:
            self._running[key] = self.enter(start())
        running: T = self._running[key]
        return running


class Bench:
    """Runs the comparisons of one benchmark and keeps their rows."""

    def __init__(
        self,
        name: str,
        *,
        this: Checkout = THIS,
        other: Checkout | None = None,
        blocks: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """
        Args:
            name: the benchmark's.
            this: the checkout that is measured.
            other: the checkout to compare it with. None: sides are compared with each other.
            blocks: of every comparison. None: what rows declare.
            seconds: of every block. None: what sides declare.
        """
        self.name = name
        self.this, self.other = this, other
        self.rows: list[Row] = []
        self._blocks, self._seconds = blocks, seconds

    def compare(
        self,
        what: str,
        sides: Mapping[str, Side],
        ratios: Sequence[Ratio],
        *,
        blocks: int = 16,
        derived: Mapping[str, Callable[[Measured], dict[str, Values]]] | None = None,
        warm_up: bool = True,
    ) -> Measured:
        """Runs the sides interleaved and adds a row for each ratio.

        With another checkout only those sides run that a row is about and that are embershard's,
        once of each checkout, and each row compares the two.

        Args:
            what: the workload, in words.
            sides: by name.
            ratios: the rows.
            blocks: of each side.
            derived: further sides, computed block by block from those that ran.
            warm_up: whether each side first runs a block that does not count.

        Returns:
            What was measured. Sides of the other checkout are named ``<side>@other``.
        """
        if self.other is not None:
            ours = {each.ours for each in ratios}
            sides = {name: s for name, s in sides.items() if name in ours and not s.is_peer}
            if not sides:
                return {}
        measured = self._interleaved(sides, self._blocks or blocks, warm_up=warm_up)
        if self.other is not None:
            self.rows += _rows_against(self.name, what, ratios, measured)
            return measured
        for name, derive in (derived or {}).items():
            measured[name] = derive(measured)
        self.rows += [_row(self.name, what, each, measured) for each in ratios]
        return measured

    def once(self, side: Side) -> Figures:
        """One block of a side of this checkout, after a warm-up block."""
        with Session() as session:
            block = side.start(session, self.this)
            block(self._seconds)
            return block(self._seconds)

    def _interleaved(self, sides: Mapping[str, Side], blocks: int, *, warm_up: bool) -> Measured:
        with Session() as session:
            running: dict[str, Block] = {}
            for name, side in sides.items():
                running[name] = side.start(session, self.this)
                if self.other is not None:
                    running[f"{name}@other"] = side.start(session, self.other)
            for block in running.values() if warm_up else ():
                block(self._seconds)
            return interleave(running, blocks, self._seconds)


def interleave(running: Mapping[str, Block], blocks: int, seconds: float | None) -> Measured:
    """A B C, C B A, A B C, ...: so many blocks of each."""
    found: dict[str, list[Figures]] = {name: [] for name in running}
    for number in range(blocks):
        order = list(running.items())
        for name, block in order if number % 2 == 0 else reversed(order):
            found[name].append(block(seconds))
    return {
        name: {figure: np.array([each[figure] for each in figures]) for figure in figures[0]}
        for name, figures in found.items()
    }


def _row(bench: str, what: str, ratio: Ratio, measured: Measured) -> Row:
    ours = measured[ratio.ours]
    theirs = measured[ratio.theirs][ratio.their_figure or ratio.figure] if ratio.theirs else None
    label = f"{ratio.theirs}, {ratio.their_figure}" if ratio.their_figure else ratio.theirs
    return Row(
        name=f"{bench}/{ratio.name}",
        what=what,
        figure=ratio.figure,
        ours=ratio.ours,
        values=ours[ratio.figure],
        theirs=label,
        their_values=theirs,
        bound=ratio.bound,
        notes=_notes(ours, ratio.figure),
    )


def _rows_against(bench: str, what: str, ratios: Sequence[Ratio], measured: Measured) -> list[Row]:
    """One row for each figure of a side: this checkout and the other one."""
    rows: dict[tuple[str, str], Row] = {}
    for ratio in ratios:
        if ratio.ours not in measured or (ratio.ours, ratio.figure) in rows:
            continue
        less = lower_is_better(ratio.figure)
        rows[ratio.ours, ratio.figure] = Row(
            name=f"{bench}/{ratio.name}",
            what=what,
            figure=ratio.figure,
            ours=f"{ratio.ours}, this checkout",
            values=measured[ratio.ours][ratio.figure],
            theirs="the other checkout",
            their_values=measured[f"{ratio.ours}@other"][ratio.figure],
            bound=Bound(at_most=1 / AGAINST_BOUND) if less else Bound(at_least=AGAINST_BOUND),
            notes=_notes(measured[ratio.ours], ratio.figure),
        )
    return list(rows.values())


def _notes(figures: Mapping[str, Values], but: str) -> dict[str, float]:
    return {name: float(np.median(values)) for name, values in figures.items() if name != but}
