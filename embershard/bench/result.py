"""The result of a run. Durations are counted in buckets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embershard.bench.load_options import LoadOptions

Bucket = tuple[int, int, int]
"""Smallest and largest duration of a bucket, in nanoseconds, and the count of durations in it."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of durations, in ascending buckets. A bucket is at most 1/128 of its values wide."""

    buckets: Sequence[Bucket]

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.buckets)

    @property
    def max_seconds(self) -> float:
        """0 if there is none."""
        return self.buckets[-1][1] * 1e-9 if self.buckets else 0.0

    def percentile_seconds(self, percent: float, *, of: int | None = None) -> float:
        """Seconds, rounded up to the end of a bucket. 0 if there are no durations.

        ``of``: total number, if some durations are unknown. Unknown ones count as infinite.
        """
        total = self.count if of is None else of
        # Rounded first: 99.9 % of 1000 is slightly more than 999 in floating point.
        rank = math.ceil(round(percent / 100 * total, 6))
        reached = 0
        for _, high, count in self.buckets:
            reached += count
            if reached >= rank:
                return high * 1e-9
        return math.inf if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    options: LoadOptions

    requests: int
    by_code: Mapping[str, int]
    """Number of requests by gRPC status, including OK."""

    messages: Mapping[str, str]
    """The first message of each status other than OK."""

    examples_ok: int

    latency: Distribution
    """Durations until OK answers, from the scheduled time (closed loop: from sending)."""

    lag: Distribution
    """Delays between scheduled time and sending: a busy tool, or too many requests in flight."""

    own_lag: Distribution = Distribution(())
    """The delays that are due to a busy tool."""

    expired_without_call: int = 0
    """Requests never sent, since too many were in flight until their deadline."""

    expired_before_send: int = 0
    """Requests never sent, since the tool was busy until their deadline."""

    expired_sent_late: int = 0
    """Requests sent after half of their timeout, and not answered in time."""

    refusal: Distribution
    """Durations from sending until RESOURCE_EXHAUSTED answers."""

    window_seconds: float
    """Length of the time in which requests were scheduled."""

    elapsed_seconds: float
    """Time from the first scheduled request to the last answer. At least the window."""

    client_cpu_seconds: float
    server_cpu_seconds: float | None
    busiest_thread_share: float
    cores: int
    """Cores that this process may use."""

    answers: Sequence[bytes | None] = ()
    """The first OK answer to each request of the pool, or None. Empty unless the run kept them."""

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
        """Failed requests count as infinitely slow."""
        return self.latency.percentile_seconds(percent, of=self.requests)
