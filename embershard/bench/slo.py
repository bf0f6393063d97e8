"""Latency objectives, and the search for the highest rate that meets one.

The search is a bisection. One whole run decides whether a rate meets ("holds") the objective::

    runs so far          next rate
    none                 the load's rate, or half of the rate of a closed loop
    all held             twice the highest
    all missed           half of the lowest, down to 1/s
    some of both         the geometric mean of the highest that held and the lowest that missed,
                         until they are within 5 %
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from embershard.bench.load_options import RATE_MAX, LoadOptions
from embershard.bench.result import RunResult
from embershard.errors import InputError
from embershard.formatting import rate_text, round_duration_text

OBJECTIVE = re.compile(
    r"\s*p(?P<percent>\d+(\.\d+)?)\s*<\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)\s*"
)

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

RUNS_MAX: Final = 16
TOLERANCE: Final = 0.05
RATE_MIN: Final = 1.0

FIRST_IN_FLIGHT: Final = 32
FIRST_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    rate: float
    held: bool

    seconds: float
    """Latency at the objective's percentile. Infinite if that request failed or none was due."""

    requests: int

    late: int
    """Number of requests that failed or took longer than the limit."""

    tool_late: bool
    """True if the tool's own delay was more than half of the limit at the percentile. A miss then
    says nothing about the server."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A limit on the latency of a percentile of all requests."""

    percent: float
    limit_seconds: float

    def trial(self, result: RunResult) -> Trial:
        limit, percent = self.limit_seconds, self.percent
        seconds = result.percentile_of_all_seconds(percent) if result.requests else math.inf
        in_time = sum(count for _, high, count in result.latency.buckets if high * 1e-9 < limit)
        return Trial(
            rate=result.options.rate or 0.0,
            held=seconds < limit,
            seconds=seconds,
            requests=result.requests,
            late=result.requests - in_time,
            tool_late=result.own_lag.percentile_seconds(percent) > limit / 2,
        )

    def __str__(self) -> str:
        return f"p{self.percent:g}<{round_duration_text(self.limit_seconds).replace(' ', '')}"


def parse_objective(text: str) -> Objective:
    """Parse an objective such as ``p99<10ms``. Units are us, ms and s.

    Raises:
        InputError: the text has another form, the percentile is outside 0 < p < 100, or the limit
            is 0.
    """
    match = OBJECTIVE.fullmatch(text)
    if not match:
        raise InputError(f"slo: expected a form like p99<10ms, got {text!r}")
    percent, limit = float(match["percent"]), float(match["limit"])
    if not 0 < percent < 100:
        raise InputError(f"slo: expected a percentile above 0 and below 100, got {text!r}")
    if not limit > 0:
        raise InputError(f"slo: expected a limit above 0, got {text!r}")
    return Objective(percent, limit * UNITS[match["unit"]])


def bisect_rates(
    objective: Objective, load: LoadOptions, run: Callable[[LoadOptions], RunResult]
) -> Iterator[tuple[Trial, RunResult]]:
    """Search for the highest rate that meets the objective, with at most 16 runs of the load.

    Each run is yielded after it ends. The load's rate is tried first, if it has one.
    """
    start = load.rate
    if start is None:
        first = replace(
            load,
            in_flight=max(FIRST_IN_FLIGHT, load.threads, load.streams),
            duration_seconds=min(FIRST_SECONDS, load.duration_seconds),
        )
        start = max(run(first).ok_per_second / 2, RATE_MIN)
    trials: list[Trial] = []
    while (rate := _next_rate(trials, start)) is not None:
        result = run(replace(load, rate=rate, in_flight=None))
        trials.append(objective.trial(result))
        yield trials[-1], result


def end_of_search(trials: Sequence[Trial]) -> str:
    held, missed = _limits(trials)
    if held is None:
        why = ": the tool itself was late" if all(trial.tool_late for trial in trials) else ""
        return f"no rate held down to {rate_text(missed)}/s{why}"
    if missed <= held * (1 + TOLERANCE):
        late = any(trial.tool_late for trial in trials if trial.rate == missed)
        return f"{rate_text(missed)}/s missed{': the tool itself was late' if late else ''}"
    if held >= RATE_MAX:
        return f"{rate_text(held)}/s is the highest rate that can be sent"
    return f"the limit of {RUNS_MAX} runs"


def _next_rate(trials: Sequence[Trial], start: float) -> float | None:
    """The rate by the table at the top. None: the search is over."""
    held, missed = _limits(trials)
    if not trials:
        return start
    if len(trials) == RUNS_MAX:
        return None
    if held is None:
        return missed / 2 if missed > RATE_MIN else None
    if missed == math.inf:
        return min(2 * held, RATE_MAX) if held < RATE_MAX else None
    return math.sqrt(held * missed) if missed > held * (1 + TOLERANCE) else None


def _limits(trials: Sequence[Trial]) -> tuple[float | None, float]:
    """The highest rate that held (or None), and the lowest rate that missed (or infinity)."""
    held = max((trial.rate for trial in trials if trial.held), default=None)
    return held, min((trial.rate for trial in trials if not trial.held), default=math.inf)
