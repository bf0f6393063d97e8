"""``starting_placements``: placements that keep to the memory of all ranks, for the search to
improve."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from embershard.formatting import count_text, megabytes_text
from embershard.planner.machine import Floats
from embershard.planner.placement import (
    NoRoomError,
    Options,
    OptionTotals,
    Placement,
    Ranks,
    Rule,
)

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
        rules: tried in order, until an option finds room.
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
                failure = min(failure or error, error, key=lambda no_room: no_room.missing_bytes)
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


LARGEST_SHOWN = 3
"""Tables that the text names."""

WEIGHTS = np.linspace(0, 1, 101)
"""Weights of one kind of memory relative to the other, in the bound on the shortage."""

KINDS = ("device memory", "host memory")


def short_bytes(options: Options, caps: Floats) -> list[float]:
    """Bytes of each kind of memory that any plan lacks, with as much as can be on the devices. All
    zero: all ranks together have enough memory.

    For weights of both kinds of at most 1, every plan lacks the weighted bytes of the options that
    are smallest by these weights, less those of the ranks. The shortage is the largest of these
    bounds, a linear programme's dual.

    Args:
        options: of each table.
        caps: usable bytes of each kind of memory and rank, ``(kinds, ranks)``.
    """
    of_tables = [np.array([option.memory.sum(1) for option in cuts]) for cuts in options]
    usable = caps.sum(1)

    def lacking(*weights: float) -> float:
        of_kinds = np.array(weights)
        least = sum(float((sizes @ of_kinds).min()) for sizes in of_tables)
        return least - float(of_kinds @ usable)

    if len(usable) == 1:
        return [max(0.0, lacking(1.0))]
    of_devices = max(0.0, lacking(1.0, 0.0))
    bounds = [lacking(*pair) for weight in WEIGHTS for pair in ((1.0, weight), (weight, 1.0))]
    return [of_devices, max(of_devices, *bounds) - of_devices]


def least_bytes(options: Options) -> list[float]:
    """Bytes of the smallest option of each table, of both kinds of memory together."""
    return [min(float(option.memory.sum()) for option in cuts) for cuts in options]


def shortage_text(
    options: Options,
    caps: Floats,
    tables: Sequence[str],
    failure: InfeasibleError | None,
    help_texts: Sequence[str],
) -> str:
    """The total shortage, the largest tables, and what helps.

    Args:
        caps: usable bytes of each kind of memory and rank, ``(kinds, ranks)``.
        tables: their names.
        failure: of the search, if all ranks together have enough memory.
        help_texts: what may be changed besides memory.
    """
    short, sizes = short_bytes(options, caps), least_bytes(options)
    needed = f"tables and buffers need at least {_size(sum(sizes))}"
    there = f"all ranks together have {_sizes_text(caps.sum(1).tolist())}"
    if failure is None:
        of_kinds = f" ({_sizes_text(short)})" if len(short) > 1 else ""
        what = f"{_size(sum(short))} short{of_kinds}: {needed}, {there}"
        each_rank = _size(sum(short) / caps.shape[1])
        more = f"at least {each_rank} more of usable memory on each rank"
    else:
        kind = f" of {KINDS[failure.kind]}" if len(short) > 1 else ""
        what = (
            f"found no placement, although no memory is short in all ({needed}, {there}): table "
            f"{tables[failure.table]!r} lacks {_size(failure.missing_bytes)}{kind} on the rank "
            "with most room"
        )
        more = "more memory on each rank"
    order = sorted(range(len(sizes)), key=lambda table: -sizes[table])[:LARGEST_SHOWN]
    largest = ", ".join(f"{tables[table]!r} {_size(sizes[table])}" for table in order)
    helping = "; ".join([more, *help_texts])
    return f"plan: {what}; the largest tables: {largest}; what helps: {helping}"


def _size(count: float) -> str:
    """Bytes, or MB of a million bytes and more."""
    if count >= 1e6:
        return f"{megabytes_text(count)} MB"
    return count_text(math.ceil(count), "byte")


def _sizes_text(sizes: Sequence[float]) -> str:
    """Bytes of each kind of memory, or of the only one."""
    if len(sizes) == 1:
        return _size(sizes[0])
    return " and ".join(f"{_size(size)} of {kind}" for size, kind in zip(sizes, KINDS, strict=True))
