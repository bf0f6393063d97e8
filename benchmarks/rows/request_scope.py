"""What it gains that a user's side is sent, looked up and computed once per request: *ranking* as
it is against the same model and requests with the user's side repeated for each candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.objective import HighestRate, highest_rate, runs_at
from benchmarks.packages import package_of
from benchmarks.repeated import drop_user, repeat_request, repeat_user
from benchmarks.servers import (
    Served,
    closed_loop,
    cores_used,
    embershard_serve,
    per_cpu_second,
    pooled,
    serving,
)
from benchmarks.watch import Watch
from embershard.bench import Objective, RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload

__all__ = ["measure", "measured"]

OBJECTIVE = Objective(99, 0.010)
REQUESTS = 60
IN_FLIGHT = 4
"""Of as many users: batches mix them."""

PAIRS = 15
BLOCK_SECONDS = 1.0
TRIAL_SECONDS = 2.0
WHOLE_SECONDS = 8.0
RUN_SECONDS = 3.0

INPUTS = "1 user with 20 features and a history of 300, 200 candidates of 40 features"
ONCE, REPEATED = "once per request", "repeated per candidate"
NOBODY = "without a user's ids"
UNIT = "examples per server CPU-second"

Side = tuple[Served, Sequence[PooledRequest]]


class Asked(NamedTuple):
    """What the rows are called."""

    name: str
    what: str


def measure() -> list[Row]:
    """With the dense program in fp32."""
    return measured("request_scope", "*ranking*")


def measured(name: str, what: str, *, dense_dtype: str = "fp32") -> list[Row]:
    """At a fixed number in flight, what that could be at most, at the highest rate of each, and on
    the wire."""
    asked = Asked(name, f"{what}: {INPUTS}")
    ranking = workload("ranking")
    random = np.random.default_rng(2)
    requests = [ranking.request(random) for _ in range(REQUESTS)]
    with ExitStack() as stack:
        sides: list[Side] = []
        for side, sent in (
            (ranking, requests),
            (repeat_user(ranking), [repeat_request(ranking, each) for each in requests]),
        ):
            package = package_of(side, dense_dtype=dense_dtype)
            served = stack.enter_context(serving(embershard_serve(package)))
            sides.append((served, pooled(sent, package)))
        once, repeated = sides
        same = package_of(ranking, dense_dtype=dense_dtype)
        nobody = pooled([drop_user(ranking, each) for each in requests], same)
        return [
            _in_flight(asked, sides),
            _most(asked, [(once[0], nobody), repeated]),
            _at_objective(asked, sides),
            _bytes(asked, [pool for _, pool in sides]),
        ]


def _in_flight(asked: Asked, sides: Sequence[Side]) -> Row:
    note = f"{IN_FLIGHT} users in flight"
    return _row(asked, "in_flight", note, _closed_loops(sides), [ONCE, REPEATED])


def _most(asked: Asked, sides: Sequence[Side]) -> Row:
    """What there is to gain at most: the user's lists are empty, so nothing is read for them."""
    note = f"{IN_FLIGHT} in flight, the lists of the first side's users empty"
    return _row(asked, "most", note, _closed_loops(sides), [NOBODY, REPEATED])


def _closed_loops(sides: Sequence[Side]) -> list[Callable[[], RunResult]]:
    return [
        closed_loop(served, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS)
        for served, pool in sides
    ]


def _at_objective(asked: Asked, sides: Sequence[Side]) -> Row:
    """Each at the highest rate that held; where none did, at the lowest one tried."""
    search = partial(
        highest_rate, objective=OBJECTIVE, trial_seconds=TRIAL_SECONDS, seconds=WHOLE_SECONDS
    )
    found = [search(served, pool) for served, pool in sides]
    runs = [
        runs_at(served, pool, each.per_second, seconds=RUN_SECONDS)
        for (served, pool), each in zip(sides, found, strict=True)
    ]
    names = [_named(name, each) for name, each in zip((ONCE, REPEATED), found, strict=True)]
    return _row(asked, "objective", f"each at the highest rate at which {OBJECTIVE}", runs, names)


def _named(name: str, found: HighestRate) -> str:
    return f"{name}, {found.per_second:.3g} requests/s{'' if found.held else ', where none held'}"


def _row(
    asked: Asked,
    name: str,
    note: str,
    runs: Sequence[Callable[[], RunResult]],
    names: Sequence[str],
) -> Row:
    (ours, theirs), watch = interleaved(runs, blocks=PAIRS)
    p99s = [
        float(np.median([each.percentile_of_all_seconds(99) * 1e3 for each in side]))
        for side in (ours, theirs)
    ]
    about = About(
        name=f"{asked.name}/{name}",
        what=asked.what,
        unit=UNIT,
        note=f"{note}; p99 {p99s[0]:.1f} ms, {names[1]} {p99s[1]:.1f} ms; {names[0]}: "
        f"{cores_used(ours)}; {names[1]}: {cores_used(theirs)}",
    )
    series = [
        Series(name, [per_cpu_second(each) for each in side])
        for name, side in zip(names, (ours, theirs), strict=True)
    ]
    return paired_row(about, *series, watch=watch)


def _bytes(asked: Asked, pools: Sequence[Sequence[PooledRequest]]) -> Row:
    about = About(
        name=f"{asked.name}/bytes", what=asked.what, unit="bytes a request", lower_is_better=True
    )
    with Watch() as watch:
        sizes = [[float(len(each.message)) for each in pool] for pool in pools]
    ours, theirs = (Series(*each) for each in zip((ONCE, REPEATED), sizes, strict=True))
    return paired_row(about, ours, theirs, watch=watch)
