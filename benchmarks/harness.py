"""Compares sides in interleaved blocks: two ways of doing one thing, or two checkouts.

Blocks of the sides alternate A B C, C B A, so that drift of the machine hits all of them. The
ratio of two sides is the median of the ratios of their neighbouring blocks.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

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

OTHER: Final = ", other checkout"
"""Behind the name of a side of the other checkout."""

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


class Session(ExitStack):
    """What one comparison started, until it is over."""

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[Hashable, Any] = {}

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(self.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))

    def shared(self, key: Hashable, start: Callable[[], AbstractContextManager[T]]) -> T:
        """The same for the same key: equal declarations of a server share one process."""
        if key not in self._running:
            self._running[key] = self.enter_context(start())
        running: T = self._running[key]
        return running


@dataclass
class Bench:
    """Runs the comparisons of one benchmark and keeps their rows."""

    name: str

    other: Checkout | None = None
    """The checkout to compare this one with. None: sides are compared with each other."""

    blocks: int | None = None
    """Of every comparison. None: what rows declare."""

    seconds: float | None = None
    """Of every block. None: what sides declare."""

    rows: list[Row] = field(default_factory=list)

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
            What was measured. Sides of the other checkout have ``OTHER`` behind their names.
        """
        if self.other is not None:
            ours = {each.ours for each in ratios}
            sides = {name: s for name, s in sides.items() if name in ours and not s.is_peer}
            ratios, derived = _against(ratios, sides), {}
        with Session() as session:
            running: dict[str, Block] = {}
            for name, side in sides.items():
                running[name] = side.start(session, THIS)
                if self.other is not None:
                    running[name + OTHER] = side.start(session, self.other)
            for block in running.values() if warm_up else ():
                block(self.seconds)
            measured = interleave(running, self.blocks or blocks, self.seconds)
        for name, derive in (derived or {}).items():
            measured[name] = derive(measured)
        self.rows += [self._row(what, each, measured) for each in ratios]
        return measured

    def once(self, side: Side) -> Figures:
        """One block of a side of this checkout, after a warm-up block."""
        with Session() as session:
            block = side.start(session, THIS)
            block(self.seconds)
            return block(self.seconds)

    def _row(self, what: str, ratio: Ratio, measured: Measured) -> Row:
        ours, theirs = measured[ratio.ours], None
        if ratio.theirs:
            theirs = measured[ratio.theirs][ratio.their_figure or ratio.figure]
        return Row(
            name=f"{self.name}/{ratio.name}",
            what=what,
            figure=ratio.figure,
            ours=ratio.ours,
            values=ours[ratio.figure],
            theirs=", ".join(filter(None, (ratio.theirs, ratio.their_figure))),
            their_values=theirs,
            bound=ratio.bound,
            notes={
                name: float(np.median(values))
                for name, values in ours.items()
                if name != ratio.figure
            },
        )


def _against(ratios: Sequence[Ratio], sides: Mapping[str, Side]) -> list[Ratio]:
    """Each figure of each of the sides once, beside that of the other checkout."""
    found: dict[tuple[str, str], Ratio] = {}
    for each in ratios:
        if each.ours in sides:
            less = lower_is_better(each.figure)
            bound = Bound(at_most=1 / AGAINST_BOUND) if less else Bound(at_least=AGAINST_BOUND)
            against = replace(each, theirs=each.ours + OTHER, their_figure="", bound=bound)
            found.setdefault((each.ours, each.figure), against)
    return list(found.values())


def interleave(running: Mapping[str, Block], blocks: int, seconds: float | None) -> Measured:
    """A B C, C B A, A B C, ...: so many blocks of each."""
    found: dict[str, list[Figures]] = {name: [] for name in running}
    for number in range(blocks):
        for name in list(running)[:: -1 if number % 2 else 1]:
            found[name].append(running[name](seconds))
    return {
        name: {figure: np.array([each[figure] for each in figures]) for figure in figures[0]}
        for name, figures in found.items()
    }


class Benchmark(Protocol):
    """Runs its comparisons."""

    __name__: str

    def __call__(self, bench: Bench) -> None: ...


@dataclass(frozen=True, slots=True)
class Declared:
    """A benchmark, and when it runs."""

    measure: Benchmark
    peers: bool
    """It needs ``.venv-peers``."""

    by_name_only: bool


BENCHMARKS: Final[dict[str, Declared]] = {}
"""By name, once `load_benchmarks` has run."""


def benchmark(
    *, peers: bool = False, by_name_only: bool = False
) -> Callable[[Benchmark], Benchmark]:
    """Declares the benchmark of a function's name."""

    def declare(measure: Benchmark) -> Benchmark:
        BENCHMARKS[measure.__name__] = Declared(measure, peers, by_name_only)
        return measure

    return declare


def load_benchmarks() -> dict[str, Declared]:
    """Those of ``rows/``."""
    for file in sorted((Path(__file__).parent / "rows").glob("[a-z]*.py")):
        importlib.import_module(f"benchmarks.rows.{file.stem}")
    return BENCHMARKS
