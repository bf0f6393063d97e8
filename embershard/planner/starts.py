"""``starting_placements``: placements that keep to the memory of all ranks, for the search to
improve."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from embershard.planner.bound import Floats, Options, OptionTotals
from embershard.planner.placement import NoRoomError, Placement, Ranks, Rule

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


Candidates = Callable[[Placement, int], Iterable[int]]
"""Options of a table, in the order in which they are tried, given the ranks so far."""


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
        candidates = _cheapest_first(totals, chosen.tolist(), of_byte)
        for order, rule in _orders(options, ranks, chosen.tolist()):
            try:
                starts.append(_filled(options, ranks, order, (rule,), candidates, deadline))
                if factor > 1 or not prices.any():
                    break
            except InfeasibleError as error:
                failures.append(error)
            if deadline.is_past:
                break
    return starts or [_in_row_ranges(options, ranks, failures, deadline)]


def _orders(
    options: Options, ranks: Ranks, chosen: Sequence[int]
) -> Iterator[tuple[list[int], Rule]]:
    """Orders of tables, and which ranks take their shards."""
    cuts = [of_table[at] for of_table, at in zip(options, chosen, strict=True)]
    yield _decreasing([cut.largest for cut in cuts]), Rule.LIGHTEST
    caps = ranks.caps.mean(1)[:, None]
    by_bytes = _decreasing([float((cut.memory / caps).max()) for cut in cuts])
    yield by_bytes, Rule.LIGHTEST
    yield by_bytes, Rule.FULLEST


def _cheapest_first(totals: OptionTotals, chosen: Sequence[int], prices: Floats) -> Candidates:
    """The chosen option of a table, then those that may find room by seconds and bytes at these
    prices."""

    def candidates(placement: Placement, table: int) -> Iterator[int]:
        yield chosen[table]
        left = np.maximum(placement.of_ranks.caps - placement.memory, 0)
        fits = (totals.largest_bytes[:, table] <= left.max(1)[:, None]).all(0)
        fits &= (totals.memory[:, table] <= left.sum(1)[:, None]).all(0)
        cost = totals.seconds[table] + prices @ totals.memory[:, table]
        yield from (int(at) for at in np.argsort(cost, kind="stable") if fits[at])

    return candidates


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
    down = _decreasing([min(float((cut.memory.sum(1) / caps).max()) for cut in o) for o in options])
    rules = Rule.IN_TURN, Rule.FULLEST
    orders = down, list(range(len(options))), down[::-1]
    for weight, order in product((None, *HOST_WEIGHTS), orders):
        rows = _rows_first(options, caps, weight)
        try:
            return _filled(options, ranks, order, rules, rows, deadline)
        except InfeasibleError as error:
            failures.append(error)
        if deadline.is_past:
            break
    raise min(failures, key=lambda failure: failure.missing_bytes)


def _rows_first(options: Options, caps: Floats, weight: float | None) -> Candidates:
    """The finest row ranges of a table, then its other options.

    Args:
        caps: bytes of each kind of memory.
        weight: of a byte of the host beside one of the device, by which kernels are preferred.
            None: those of least seconds are.
    """
    weights = np.array([1.0, 0.0] if weight is None else [1 - weight, weight])[: len(caps)] / caps

    def candidates(_: Placement, table: int) -> list[int]:
        cuts = options[table]
        parts = [len(cut.spans) if cut.is_row_ranges else 0 for cut in cuts]
        costs = [cut.total if weight is None else weights @ cut.memory.sum(1) for cut in cuts]
        return sorted(range(len(cuts)), key=lambda at: (parts[at] < max(parts), costs[at]))

    return candidates


def _filled(
    options: Options,
    ranks: Ranks,
    order: Sequence[int],
    rules: Sequence[Rule],
    candidates: Candidates,
    deadline: Deadline,
) -> Placement:
    """The ranks with all tables, placed in this order, each by the first option that finds room.

    Args:
        rules: of which the next is used if no option finds room by those before.

        deadline: after it each table is tried by its first option, and by all of its options in
            turn of the ranks.

    Raises:
        InfeasibleError: a table has no room, or time ended before all its options were tried.
    """
    placement = Placement(options, ranks)
    for table in order:
        failure: NoRoomError | None = None
        for rule, at in ((rule, at) for rule in rules for at in candidates(placement, table)):
            if failure is not None and rule is not Rule.IN_TURN and deadline.is_past:
                raise InfeasibleError(table, failure.missing_bytes, failure.kind)
            try:
                placed = placement.find_places(options[table][at], rule)
            except NoRoomError as error:
                failure = min(failure or error, error, key=lambda each: each.missing_bytes)
                continue
            assert placed is not None
            placement.accept(table, at, placed)
            break
        else:
            assert failure is not None
            raise InfeasibleError(table, failure.missing_bytes, failure.kind)
    return placement


def _decreasing(sizes: Sequence[float]) -> list[int]:
    """Places of the sizes, the largest first."""
    return [int(place) for place in np.argsort(-np.array(sizes), kind="stable")]
