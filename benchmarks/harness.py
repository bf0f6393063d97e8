"""Compares sides in interleaved blocks. Sides are ways to do the same work, or checkouts.

Blocks alternate, A B C, C B A, ..., so that a change in the machine's speed affects all sides. The
ratio of two sides is the median ratio of their neighbouring blocks.
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
"""A row fails if the interval of the ratio to the other checkout's rate is below this."""

OTHER: Final = ", other checkout"
"""Suffix of the names of the other checkout's sides."""

T = TypeVar("T")

Figures = Mapping[str, float]
"""Measurements of one block by name, such as ``requests_per_second`` or ``p99_us``."""

Block = Callable[[float | None], Figures]
"""Runs one block. The argument is its length in seconds, or None for the side's default."""

Measured = dict[str, dict[str, Values]]


class Side(Protocol):
    @property
    def is_peer(self) -> bool:
        """True if it does not depend on embershard, so that it is the same for every checkout."""

    def start(self, session: Session, checkout: Checkout) -> Block:
        """Start what blocks need. The session ends it."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Declares a row: a figure of our side, alone or divided by another side's figure."""

    name: str
    figure: str
    ours: str
    theirs: str = ""
    their_figure: str = ""
    """Figure of the other side. Empty if it is the same."""

    bound: Bound = NO_BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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
    """Medians of our side's other figures."""

    @property
    def estimate(self) -> Estimate | None:
        return None if self.their_values is None else paired_ratio(self.values, self.their_values)

    @property
    def judged(self) -> bool:
        """True if there are enough blocks for an interval."""
        return len(self.values) >= INTERVAL_PAIRS

    @property
    def failed(self) -> bool:
        estimate = self.estimate
        return estimate is not None and self.judged and self.bound.fails(estimate)


class Session(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self._running: dict[Hashable, Any] = {}

    def folder(self, name: str) -> Path:
        return Path(self.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))

    def shared(self, key: Hashable, start: Callable[[], AbstractContextManager[T]]) -> T:
        """Start something, or return what runs with this key. Equal servers share a process."""
        if key not in self._running:
            self._running[key] = self.enter_context(start())
        running: T = self._running[key]
        return running


@dataclass
class Bench:
    name: str

    other: Checkout | None = None
    """The checkout to compare with. If it is None, sides are compared with each other."""

    blocks: int | None = None
    """If it is None, rows set it."""

    seconds: float | None = None
    """If it is None, sides set it."""

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
        """Run the sides interleaved and add a row for each ratio. Returns the measurements.

        With another checkout, each of our sides runs in both checkouts, with the suffix ``OTHER``
        in the other, and rows compare these two. Peers and sides without a row do not run.

        Args:
            derived: further sides, which are computed from the measured ones for each block.
            warm_up: run a block of each side first that is not counted.
        """
        if self.other is not None:
            ours = {ratio.ours for ratio in ratios}
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
        self.rows += [self._row(what, ratio, measured) for ratio in ratios]
        return measured

    def once(self, side: Side) -> Figures:
        """Run one block, after a warm-up block."""
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
    """Compare each figure of the sides with the other checkout, without duplicates."""
    compared: dict[tuple[str, str], Ratio] = {}
    for ratio in ratios:
        if ratio.ours in sides:
            less = lower_is_better(ratio.figure)
            bound = Bound(at_most=1 / AGAINST_BOUND) if less else Bound(at_least=AGAINST_BOUND)
            against = replace(ratio, theirs=ratio.ours + OTHER, their_figure="", bound=bound)
            compared.setdefault((ratio.ours, ratio.figure), against)
    return list(compared.values())


def interleave(running: Mapping[str, Block], blocks: int, seconds: float | None) -> Measured:
    """Run blocks of each side in the order A B C, C B A, A B C, ..."""
    measured: dict[str, list[Figures]] = {name: [] for name in running}
    for number in range(blocks):
        for name in list(running)[:: -1 if number % 2 else 1]:
            measured[name].append(running[name](seconds))
    return {
        name: {figure: np.array([block[figure] for block in figures]) for figure in figures[0]}
        for name, figures in measured.items()
    }


class Benchmark(Protocol):
    __name__: str

    def __call__(self, bench: Bench) -> None: ...


@dataclass(frozen=True, slots=True)
class Declared:
    measure: Benchmark
    peers: bool

    by_name_only: bool


BENCHMARKS: Final[dict[str, Declared]] = {}


def benchmark(
    *, peers: bool = False, by_name_only: bool = False
) -> Callable[[Benchmark], Benchmark]:
    """Declare a benchmark, which has the name of the function."""

    def declare(measure: Benchmark) -> Benchmark:
        BENCHMARKS[measure.__name__] = Declared(measure, peers, by_name_only)
        return measure

    return declare


def load_benchmarks() -> dict[str, Declared]:
    for file in sorted((Path(__file__).parent / "rows").glob("[a-z]*.py")):
        importlib.import_module(f"benchmarks.rows.{file.stem}")
    return BENCHMARKS
