"""Rows about the highest rate that meets a latency objective."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np

from benchmarks.checkout import Checkout
from benchmarks.harness import Bench, Block, Figures, Measured, Ratio, Session
from benchmarks.loads import Load
from benchmarks.local import MERGE_EXAMPLES, Local
from embershard.bench import Objective, RunResult
from embershard.bench.slo import bisect_rates

NEXT_START: Final = 0.9
"""A search starts at this share of the rate that the last search found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """Searches the highest open-loop rate that meets an objective, by bisection over whole runs.

    Figures are those of the run at that rate, and ``held`` 1. If none met the objective, they are
    those of the lowest tried rate, and ``held`` is 0.
    """

    load: Load
    """The search sets its rate. Its seconds are the length of each run."""

    objective: Objective
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        run = self.load.started(session, checkout)
        seeds, start = count(), list[float]()

        def block(seconds: float | None) -> Figures:
            load = replace(self.load, in_flight=1).options(seconds)
            if start:
                load = replace(load, rate=start[-1], in_flight=None)
            search = bisect_rates(
                self.objective, load, lambda load: run(replace(load, seed=next(seeds)))
            )
            results, held = dict[float, RunResult](), list[float]()
            for trial, result in search:
                results[trial.rate] = result
                if trial.held:
                    held.append(trial.rate)
            rate = max(held) if held else min(results)
            if held:
                start.append(NEXT_START * rate)
            return {
                "requests_per_second": rate,
                "examples_per_second": results[rate].examples_per_second,
                "p99_us": results[rate].percentile_of_all_seconds(99) * 1e6,
                "held": float(bool(held)),
            }

        return block


def measure_objective(
    bench: Bench, what: str, search: HighestRate, *, searches: int, seconds: float, pairs: int
) -> None:
    """Add the row ``rate``, and at that rate the rows ``served``, ``p99`` and ``of_offline``.

    ``seconds`` is the length of blocks at that rate. Blocks in process take a quarter of it.
    """
    load = search.load
    measured = bench.compare(
        f"{what}; highest rate at which {search.objective}",
        {"served": search},
        [Ratio("rate", "examples_per_second", "served")],
        blocks=searches,
        warm_up=False,
    )
    rate = lowest_rate(measured)
    requests = load.requests
    one_thread = Local(package=requests.package, requests=requests, seconds=seconds / 4)
    all_cores = replace(
        one_thread, on_each_core=True, merge_examples=MERGE_EXAMPLES, merge_requests=0
    )
    bench.compare(
        f"{what}; at {rate:.0f} requests/s",
        {
            "served": replace(load, rate=rate, seconds=seconds),
            "in process, 1 thread": one_thread,
            "in process, all cores": all_cores,
        },
        [
            Ratio("served", "examples_per_cpu_second", "served", "in process, 1 thread"),
            Ratio("p99", "p99_us", "served"),
            Ratio("of_offline", "examples_per_second", "served", "in process, all cores"),
        ],
        blocks=pairs,
        warm_up=False,
    )


def lowest_rate(measured: Measured) -> float:
    """The lowest rate among all checkouts that met the objective. If none did, the lowest rate."""
    rates = np.concatenate([side["requests_per_second"] for side in measured.values()])
    held = np.concatenate([side["held"] for side in measured.values()]) > 0
    return float(rates[held].min() if held.any() else rates.min())
