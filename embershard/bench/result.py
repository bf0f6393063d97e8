"""Results of a run, with durations counted by bucket."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embershard.bench.load_options import LoadOptions

Bucket = tuple[int, int, int]
"""Smallest and largest value, in nanoseconds, and how many fell between."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Durations by bucket, smallest first; a bucket is at most 1/128 of its values wide."""

    buckets: Sequence[Bucket]

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.buckets)

    @property
    def max_seconds(self) -> float:
        """The largest, exactly; 0 if there is none."""
        return self.buckets[-1][1] * 1e-9 if self.buckets else 0.0

    def percentile_seconds(self, percent: float, *, of: int | None = None) -> float:
        """The smallest duration that ``percent`` of all do not exceed, at its bucket's upper end.
        ``of``: how many there are with those that never ended, which count as endless. Infinite if
        it is one of these; 0 if there is none at all."""
        total = self.count if of is None else of
        rank = math.ceil(round(percent / 100 * total, 6))  # 99.9 % of 1000 is 999, not more.
        reached = 0
        for _, high, count in self.buckets:
            reached += count
            if reached >= rank:
                return high * 1e-9
        return math.inf if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run measured."""

    options: LoadOptions

    requests: int
    """Scheduled, each with an outcome."""

    by_code: Mapping[str, int]
    """Requests by gRPC status, OK among them."""

    messages: Mapping[str, str]
    """The first message of each status but OK."""

    examples_ok: int

    latency: Distribution
    """Durations of answers that are OK, from the scheduled time (closed loop: from sending)."""

    lag: Distribution
    """How late requests left, by the tool's own doing or for want of a free call."""

    own_lag: Distribution = Distribution(())
    """The same without the wait for a free call."""

    expired_without_call: int = 0
    """Requests never sent: all calls in flight waited for answers until their deadlines."""

    expired_before_send: int = 0
    """Requests never sent: the tool was late by their whole timeout, though calls were free."""

    expired_sent_late: int = 0
    """Requests sent with less than half of their timeout left, and not answered in time."""

    refusal: Distribution
    """Durations of answers that are RESOURCE_EXHAUSTED, from sending."""

    window_seconds: float
    """Time in which requests were scheduled."""

    elapsed_seconds: float
    """From the first one scheduled to the last answer; at least the window."""

    client_cpu_seconds: float
    server_cpu_seconds: float | None
    busiest_thread_share: float
    cores: int
    """Cores that this process may use."""

    answers: Sequence[bytes | None] = ()
    """The first answer to each request of the pool that was OK, if the run kept them."""

    @property
    def ok(self) -> int:
        return self.by_code.get("OK", 0)

    @property
    def scheduled_per_second(self) -> float:
        return self.requests / self.window_seconds

    @property
    def ok_per_second(self) -> float:
        return self.ok / self.elapsed_seconds

    @property
    def examples_per_second(self) -> float:
        return self.examples_ok / self.elapsed_seconds

    def percentile_of_all_seconds(self, percent: float) -> float:
        """The percentile of all requests; those that failed count as endless."""
        return self.latency.percentile_seconds(percent, of=self.requests)
