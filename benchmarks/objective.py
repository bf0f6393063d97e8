"""Rows about a latency objective: the highest rate that keeps it."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np

from benchmarks.checkout import Checkout
from benchmarks.harness import Bench, Block, Figures, Measured, Ratio, Session
from benchmarks.loads import Load
from benchmarks.local import MERGE_EXAMPLES, Local
from embershard.bench import Objective
from embershard.bench.rate_search import find_rate

TRIALS_MAX: Final = 8
WHOLE_RATES_MAX: Final = 2
NEXT_START: Final = 0.9
"""Where the next search starts, as a share of the rate that the last one confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """Blocks that search the highest open-loop rate at which an objective holds, and confirm it
    with whole runs: at most 8 short runs and 3 whole ones at each of 2 rates.

    Figures: ``requests_per_second``, ``examples_per_second`` of the run that confirmed the rate, or
    of the run at the lowest rate tried if none held; ``held``, 1 or 0.
    """

    load: Load
    """Its rate is the search's to choose; its seconds are those of a whole run."""

    objective: Objective
    trial_seconds: float
    """Of each short run; more if its answers would be too few to judge by."""

    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        run = self.load.started(session, checkout)
        seeds, start = count(), list[float]()

        def block(seconds: float | None) -> Figures:
            whole = replace(self.load, in_flight=1).options(seconds)
            if start:
                whole = replace(whole, rate=start[-1], in_flight=None)
            search, results = find_rate(
                self.objective,
                whole,
                lambda _, load: run(replace(load, seed=next(seeds))),
                trial_seconds=min(self.trial_seconds, whole.duration_seconds),
                max_trials=TRIALS_MAX,
                max_whole_rates=WHOLE_RATES_MAX,
            )
            held = search.confirmed is not None
            result = results[-1] if held else min(results, key=lambda each: each.options.rate or 0)
            assert result.options.rate is not None
            if held:
                start.append(NEXT_START * result.options.rate)
            return {
                "requests_per_second": result.options.rate,
                "examples_per_second": result.examples_per_second,
                "p99_us": result.percentile_of_all_seconds(99) * 1e6,
                "held": float(held),
            }

        return block


def measure_objective(
    bench: Bench, what: str, search: HighestRate, *, searches: int, seconds: float, pairs: int
) -> None:
    """Rows ``rate``, ``served``, ``p99`` and ``of_offline``: of the highest rate at which the
    objective holds. ``seconds``: of blocks at that rate, a quarter of it in process."""
    load = search.load
    found = bench.compare(
        f"{what}; highest rate at which {search.objective}",
        {"served": search},
        [Ratio("rate", "examples_per_second", "served")],
        blocks=searches,
        warm_up=False,
    )
    rate = lowest_rate(found)
    requests = load.requests
    one = Local(package=requests.package, requests=requests, seconds=seconds / 4)
    all_cores = replace(one, on_each_core=True, merge_examples=MERGE_EXAMPLES, merge_requests=0)
    bench.compare(
        f"{what}; at {rate:.0f} requests/s",
        {
            "served": replace(load, rate=rate, seconds=seconds),
            "in process, 1 thread": one,
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


def lowest_rate(found: Measured) -> float:
    """Of the rates that held, in every checkout; of those tried where none held."""
    rates = np.concatenate([each["requests_per_second"] for each in found.values()])
    held = np.concatenate([each["held"] for each in found.values()]) > 0
    return float(rates[held].min() if held.any() else rates.min())
