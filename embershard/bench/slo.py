"""Objectives, and whether so many late answers among so many keep one.

A run of a few seconds at a low rate has few answers, and one late answer among 50 is already 2 %.
So a rate is judged by the answers of several runs, until they say enough::

    late answers        verdict
    as many as may be   holds, of at least three times the requests among which one may be late
    more                fails, where chance would make so many late at most once in 20 times at a
                        rate at which just as many are late as may be
    otherwise           open
"""

import math
import re
from dataclasses import dataclass
from typing import Final

from embershard.bench.result import RunResult, rank_of
from embershard.errors import InputError
from embershard.formatting import round_duration_text

OBJECTIVE = re.compile(
    r"\s*p(?P<percent>\d+(\.\d+)?)\s*<\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)\s*"
)

CHANCE_MAX: Final = 0.05
"""How often a rate that just holds may be said to fail."""

ANSWERS_OF_LATE: Final = 3
"""Where so many times the requests among which one may be late had no late one, more than that are
late at fewer than one rate in 20."""

ANSWERS_MIN: Final = 20
"""Of any objective."""

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Objective:
    """A percentile of all requests stays below a limit."""

    percent: float
    limit_seconds: float

    def seconds(self, result: RunResult) -> float:
        """The percentile of a run; infinite where that request failed, or there was none."""
        return result.percentile_of_all_seconds(self.percent) if result.requests else math.inf

    def late(self, result: RunResult) -> int:
        """Requests of a run that did not come within the limit, those that failed among them."""
        limit = self.limit_seconds
        in_time = sum(count for _, high, count in result.latency.buckets if high * 1e-9 < limit)
        return result.requests - in_time

    def tool_late(self, result: RunResult) -> bool:
        """Whether the tool's own delay at the percentile took more than half of the limit."""
        own = result.own_lag.percentile_seconds(self.percent)
        return result.options.is_open and own > self.limit_seconds / 2

    @property
    def answers_min(self) -> int:
        """Of fewer, nothing can be said to hold."""
        needed = ANSWERS_OF_LATE / (1 - self.percent / 100)
        return max(ANSWERS_MIN, math.ceil(round(needed, 6)))

    def allowed(self, requests: int) -> int:
        """How many of them may be late."""
        return requests - rank_of(self.percent, requests)

    def judge(self, requests: int, late: int) -> bool | None:
        """Whether so many late ones of so many keep the objective. None: these do not say."""
        if late <= self.allowed(requests):
            return True if requests >= self.answers_min else None
        chance = _chance_of_as_many(late, requests, 1 - self.percent / 100)
        return False if chance <= CHANCE_MAX else None

    def __str__(self) -> str:
        return f"p{self.percent:g}<{round_duration_text(self.limit_seconds).replace(' ', '')}"


def parse_objective(text: str) -> Objective:
    """Read ``p99<10ms``; units are us, ms and s.

    Raises:
        InputError: of another form, a percentile not above 0 and below 100, a limit of 0.
    """
    found = OBJECTIVE.fullmatch(text)
    if not found:
        raise InputError(f"slo: expected a form like p99<10ms, got {text!r}")
    percent, limit = float(found["percent"]), float(found["limit"])
    if not 0 < percent < 100:
        raise InputError(f"slo: expected a percentile above 0 and below 100, got {text!r}")
    if not limit > 0:
        raise InputError(f"slo: expected a limit above 0, got {text!r}")
    return Objective(percent, limit * UNITS[found["unit"]])


def _chance_of_as_many(late: int, requests: int, share: float) -> float:
    """That so many or more of the requests are late, where each is with this chance.

    REQUIRES: more late ones than this share of all, so that each further one is less likely.
    """
    ways = math.lgamma(requests + 1) - math.lgamma(late + 1) - math.lgamma(requests - late + 1)
    one = math.exp(ways + late * math.log(share) + (requests - late) * math.log1p(-share))
    total, many = 0.0, late
    while one > total * 1e-12:
        total += one
        one *= (requests - many) / (many + 1) * share / (1 - share)
        many += 1
    return total
