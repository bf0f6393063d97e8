"""``starting_placements``: placements that keep to the memory of all ranks, for the search to
improve."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from embershard.planner.bound import Floats, Options, OptionTotals
from embershard.planner.placement import NoRoomError, Placed, Placement, Ranks, Rule

STARTS = (1.0, 0.5, 0.25, 1.03, 1.1, 1.3, 2.0)
"""Limits on the largest shard that are tried, relative to the lower bound."""

HOST_WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Weights of a byte of the host beside one of the device, in the choice of kernels of the last
resort."""


class InfeasibleError(Exception):
    """No placement was found that keeps to the memory of the ranks.

    Args:
        table: that found no room.
        missing_bytes: of its smallest shard.
        kind: of memory that is missing.
    """

    def __init__(self, table: int, missing_bytes: float, kind: int = 0) -> None:
        super().__init__(f"table {table}: {missing_bytes:.0f} bytes")
        self.table, self.missing_bytes, self.kind = table, missing_bytes, kind


class Deadline:
    """A time by which a search ends.

    Args:
        seconds: from now on.
        clock: gives seconds. Tests pass their own.
    """

    def __init__(
        self, seconds: float = np.inf, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._start = clock, clock()
        self._seconds = seconds

    @property
    def is_past(self) -> bool:
        """True once the time is over."""
        return self.elapsed > self._seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start


def starting_placements(
    options: Options, ranks: Ranks, totals: OptionTotals, bound: float, deadline: Deadline
) -> list[Placement]:
    """At least one placement. If time is over, only what has to be tried until one is found.

    Args:
        totals: of the options.
        bound: seconds that no step undercuts.

    Raises:
        InfeasibleError: none was found.
    """
    starts, tried, failures = list[Placement](), set[bytes](), list[InfeasibleError]()
    prices = totals.prices(bound)
    for factor, is_priced in product(STARTS, (True, False) if prices.any() else (False,)):
        if tried and deadline.is_past:
            break
        of_byte = prices if is_priced else np.zeros_like(prices)
        chosen = totals.cheapest(bound * factor, of_byte)
        work = totals.seconds[np.arange(len(chosen)), chosen].sum() / ranks.speeds.sum()
        if chosen.tobytes() in tried or work > min((start.step for start in starts), default=work):
            continue
        tried.add(chosen.tobytes())
        filling = _Filling(options, ranks, totals, chosen.tolist(), of_byte)
        for order, rule in filling.orders():
            try:
                starts.append(filling.fill(order, rule, deadline))
                if factor > 1 or not prices.any():
                    break
            except InfeasibleError as error:
                failures.append(error)
            if deadline.is_past:
                break
    return starts or [_in_row_ranges(options, ranks, failures, deadline)]


class _Filling:
    """Ranks that are filled with tables, each by its chosen option if ranks have room for it.

    Args:
        chosen: option of each table.
        prices: seconds of a byte of each kind of memory, for the order of other options.
    """

    def __init__(
        self,
        options: Options,
        ranks: Ranks,
        totals: OptionTotals,
        chosen: Sequence[int],
        prices: Floats,
    ) -> None:
        self._options, self._ranks, self._totals = options, ranks, totals
        self._chosen, self._prices = chosen, prices

    def orders(self) -> Iterator[tuple[list[int], Rule]]:
        """Orders of tables, and which ranks take their shards."""
        options = [cuts[at] for cuts, at in zip(self._options, self._chosen, strict=True)]
        yield _decreasing([option.largest for option in options]), Rule.LIGHTEST
        caps = self._ranks.caps.mean(1)[:, None]
        by_bytes = _decreasing([float((option.memory / caps).max()) for option in options])
        yield by_bytes, Rule.LIGHTEST
        yield by_bytes, Rule.FULLEST

    def fill(self, order: Sequence[int], rule: Rule, deadline: Deadline) -> Placement:
        """The ranks with all tables, which are placed in this order.

        Raises:
            InfeasibleError: a table has no room, or time ended before all its options were tried.
        """
        placement = Placement(self._options, self._ranks)
        for table in order:
            at = self._chosen[table]
            try:
                placed = placement.find_places(self._options[table][at], rule)
            except NoRoomError as error:
                at, placed = self._placed_otherwise(placement, table, rule, deadline, error)
            assert placed is not None
            placement.accept(table, at, placed)
        return placement

    def _placed_otherwise(
        self,
        placement: Placement,
        table: int,
        rule: Rule,
        deadline: Deadline,
        error: NoRoomError,
    ) -> tuple[int, Placed]:
        """The cheapest option of a table that finds room, and where."""
        cuts, totals = self._options[table], self._totals
        left = np.maximum(self._ranks.caps - placement.memory, 0)
        fits = (totals.largest_bytes[:, table] <= left.max(1)[:, None]).all(0)
        fits &= (totals.memory[:, table] <= left.sum(1)[:, None]).all(0)
        cost = totals.seconds[table] + self._prices @ totals.memory[:, table]
        for at in np.argsort(cost, kind="stable").tolist():
            if at >= len(cuts) or not fits[at]:
                continue
            if deadline.is_past:
                break
            try:
                placed = placement.find_places(cuts[at], rule)
            except NoRoomError as smaller:
                error = min(error, smaller, key=lambda failure: failure.missing_bytes)
                continue
            assert placed is not None
            return at, placed
        raise InfeasibleError(table, error.missing_bytes, error.kind)


def _in_row_ranges(
    options: Options, ranks: Ranks, failures: list[InfeasibleError], deadline: Deadline
) -> Placement:
    """The last resort: tables in row ranges over all ranks, which fill the memory of all ranks
    evenly. Several orders of tables and preferences between kernels are tried.

    Args:
        failures: of placements before, which the error is chosen from, too.

    Raises:
        InfeasibleError: the memory of the ranks does not hold them, either.
    """
    caps = ranks.caps.sum(1)
    sizes = [min(float((cut.memory.sum(1) / caps).max()) for cut in cuts) for cuts in options]
    down = _decreasing(sizes)
    for weight, order in product(
        (None, *HOST_WEIGHTS), (down, list(range(len(options))), down[::-1])
    ):
        try:
            return _rows_in_order(options, ranks, order, weight)
        except InfeasibleError as error:
            failures.append(error)
        if deadline.is_past:
            break
    raise min(failures, key=lambda failure: failure.missing_bytes)


def _rows_in_order(
    options: Options, ranks: Ranks, order: Sequence[int], weight: float | None
) -> Placement:
    """Tables in this order, each by the first of its row ranges that fits.

    Args:
        weight: of a byte of the host beside one of the device, by which kernels are preferred.
            None: those of least seconds are.

    Raises:
        InfeasibleError: a table has no room.
    """
    placement, caps, count = Placement(options, ranks), ranks.caps.sum(1), len(ranks.speeds)
    weights = np.zeros(len(caps)) if weight is None else np.array([1 - weight, weight])[: len(caps)]
    for table in order:
        cuts = options[table]
        costs = [
            cut.total if weight is None else float(weights @ (cut.memory.sum(1) / caps))
            for cut in cuts
        ]
        parts = [len(cut.spans) if cut.is_row_ranges else 0 for cut in cuts]
        finest = max(parts)
        by_cost = sorted(range(len(cuts)), key=lambda at: (parts[at] < finest, costs[at]))
        for at in by_cost:
            if parts[at] == count and _has_room(placement, cuts[at].memory):
                placement.put(table, at, range(count))
                break
        else:
            _place_anywhere(placement, table, by_cost)
    return placement


def _has_room(placement: Placement, memory: Floats) -> bool:
    """True if each rank has room for one of the shards."""
    return bool((placement.memory + memory <= placement.of_ranks.caps).all())


def _place_anywhere(placement: Placement, table: int, order: Sequence[int]) -> None:
    """Place a table by the first of its options, in this order, that finds room.

    Raises:
        InfeasibleError: none does.
    """
    failure: NoRoomError | None = None
    for at in order:
        try:
            placed = placement.find_places(placement.options[table][at], Rule.FULLEST)
        except NoRoomError as error:
            failure = min(failure or error, error, key=lambda each: each.missing_bytes)
            continue
        assert placed is not None
        placement.accept(table, at, placed)
        return
    assert failure is not None
    raise InfeasibleError(table, failure.missing_bytes, failure.kind)


def _decreasing(sizes: Sequence[float]) -> list[int]:
    """Places of the sizes, the largest first."""
    return [int(place) for place in np.argsort(-np.array(sizes), kind="stable")]
