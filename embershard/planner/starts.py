"""``starting_placements``: placements that fit the memory of all ranks, to be improved."""

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
"""Limits to try on the largest shard, relative to the lower bound."""

HOST_WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""For the last resort: weights of a host byte relative to a device byte, to choose kernels by."""


class InfeasibleError(Exception):
    """No placement was found that fits the memory of the ranks. The smallest shard of ``table``
    lacks ``missing_bytes`` of memory ``KINDS[kind]``."""

    def __init__(self, table: int, missing_bytes: float, kind: int = 0) -> None:
        super().__init__(f"table {table}: {missing_bytes:.0f} bytes")
        self.table, self.missing_bytes, self.kind = table, missing_bytes, kind


class Deadline:
    """A time limit. Tests pass their own clock."""

    def __init__(
        self, seconds: float = np.inf, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._start = clock, clock()
        self._seconds = seconds

    @property
    def is_past(self) -> bool:
        return self.elapsed > self._seconds

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start


Candidates = Callable[[Placement, int], Iterable[int]]
"""Options of a table in the order to try, for the placement so far."""


def starting_placements(
    options: Options, ranks: Ranks, totals: OptionTotals, bound: float, deadline: Deadline
) -> list[Placement]:
    """Make at least one placement. After the deadline, only tries until one is found. Raises
    InfeasibleError if none was found."""
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
                starts.append(_fill_ranks(options, ranks, order, (rule,), candidates, deadline))
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
    """Orders of tables, each with the rule to choose ranks by."""
    cuts = [of_table[at] for of_table, at in zip(options, chosen, strict=True)]
    yield _decreasing([cut.largest for cut in cuts]), Rule.LIGHTEST
    caps = ranks.caps.mean(1)[:, None]
    by_bytes = _decreasing([float((cut.memory / caps).max()) for cut in cuts])
    yield by_bytes, Rule.LIGHTEST
    yield by_bytes, Rule.FULLEST


def _cheapest_first(totals: OptionTotals, chosen: Sequence[int], prices: Floats) -> Candidates:
    """The chosen option of a table, then its other options that may fit, by priced cost."""

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
    """The last resort: cut every table by rows over all ranks, which fills their memory evenly.
    Tries several orders of tables and preferences between kernels. Raises the InfeasibleError with
    the least missing bytes, of these and of earlier ``failures``."""
    caps = ranks.caps.sum(1)
    down = _decreasing([min(float((cut.memory.sum(1) / caps).max()) for cut in o) for o in options])
    rules = Rule.IN_TURN, Rule.FULLEST
    orders = down, list(range(len(options))), down[::-1]
    for weight, order in product((None, *HOST_WEIGHTS), orders):
        rows = _rows_first(options, caps, weight)
        try:
            return _fill_ranks(options, ranks, order, rules, rows, deadline)
        except InfeasibleError as error:
            failures.append(error)
        if deadline.is_past:
            break
    raise min(failures, key=lambda failure: failure.missing_bytes)


def _rows_first(options: Options, caps: Floats, weight: float | None) -> Candidates:
    """The finest row ranges of a table, then its other options. ``weight`` of a host byte relative
    to a device byte chooses the kernel; None chooses by seconds."""
    weights = np.array([1.0, 0.0] if weight is None else [1 - weight, weight])[: len(caps)] / caps

    def candidates(_: Placement, table: int) -> list[int]:
        cuts = options[table]
        parts = [len(cut.spans) if cut.is_row_ranges else 0 for cut in cuts]
        costs = [cut.total if weight is None else weights @ cut.memory.sum(1) for cut in cuts]
        return sorted(range(len(cuts)), key=lambda at: (parts[at] < max(parts), costs[at]))

    return candidates


def _fill_ranks(
    options: Options,
    ranks: Ranks,
    order: Sequence[int],
    rules: Sequence[Rule],
    candidates: Candidates,
    deadline: Deadline,
) -> Placement:
    """Place all tables in this order, each by the first rule and option that fits. After the
    deadline, a table gets only its first option, except with ``Rule.IN_TURN``. Raises
    InfeasibleError if a table does not fit, or time ended before all its options were tried."""
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
    return [int(place) for place in np.argsort(-np.array(sizes), kind="stable")]


LARGEST_SHOWN = 3
WEIGHTS = np.linspace(0, 1, 101)
"""Relative weights of the two kinds of memory to try in the bound on the shortage."""

KINDS = ("device memory", "host memory")


def short_bytes(options: Options, caps: Floats) -> list[float]:
    """Bytes of each kind of memory that every plan lacks, all zero if all ranks together have
    enough. For weights of at most 1, every plan lacks at least the weighted bytes of each table's
    smallest option, minus those of the ranks. The shortage is the largest of these bounds, the dual
    of a linear program."""
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
    """Bytes of each table's smallest option, of both kinds of memory together."""
    return [min(float(option.memory.sum()) for option in cuts) for cuts in options]


def shortage_text(
    options: Options,
    caps: Floats,
    tables: Sequence[str],
    failure: InfeasibleError | None,
    help_texts: Sequence[str],
) -> str:
    """Error message: the total shortage, the largest tables, and what helps. ``failure`` is the
    search's, if all ranks together have enough memory."""
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
            f"found no placement, although the total memory is enough ({needed}, {there}): table "
            f"{tables[failure.table]!r} lacks {_size(failure.missing_bytes)}{kind} on the rank "
            "with most free memory"
        )
        more = "more memory on each rank"
    order = sorted(range(len(sizes)), key=lambda table: -sizes[table])[:LARGEST_SHOWN]
    largest = ", ".join(f"{tables[table]!r} {_size(sizes[table])}" for table in order)
    helping = "; ".join([more, *help_texts])
    return f"plan: {what}; the largest tables: {largest}; what helps: {helping}"


def _size(count: float) -> str:
    if count >= 1e6:
        return f"{megabytes_text(count)} MB"
    return count_text(math.ceil(count), "byte")


def _sizes_text(sizes: Sequence[float]) -> str:
    if len(sizes) == 1:
        return _size(sizes[0])
    return " and ".join(f"{_size(size)} of {kind}" for size, kind in zip(sizes, KINDS, strict=True))
