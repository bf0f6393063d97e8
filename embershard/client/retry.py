"""Deadlines of calls, and which failed calls are sent again and when. No sleep, no call."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import grpc

from embershard.client.arguments import check_timeout
from embershard.client.status import pushback_seconds
from embershard.errors import DeadlineError


def deadline_in(timeout_seconds: float | None, *, default: float) -> float:
    """On the monotonic clock. None: the default."""
    given = default if timeout_seconds is None else check_timeout(timeout_seconds)
    return time.monotonic() + given


def remaining_seconds(deadline: float, *, address: str) -> float:
    """Until a deadline; above 0."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise DeadlineError(f"{address}: the deadline passed before the request was sent")
    return remaining


def timeout_ms(deadline: float, *, address: str) -> int:
    """Until a time of the monotonic clock, as a request states it; at least 1."""
    return max(1, int(remaining_seconds(deadline, address=address) * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """The rules of one client.

    Sent again are calls that found no server (UNAVAILABLE), after a pause that doubles, and calls
    that a server refused to protect others (RESOURCE_EXHAUSTED), where it says after how long.
    """

    max_attempts: int

    first_backoff_seconds: float = 0.05

    backoff_seconds_max: float = 1.0

    def wait_seconds(
        self, failure: grpc.RpcError, *, attempt: int, remaining_seconds: float
    ) -> float | None:
        """How long to wait before the next attempt; less than remains until the deadline of all
        together. None: another attempt cannot help. ``attempt``: the number of the last one, from
        1."""
        if attempt >= self.max_attempts:
            return None
        wait_seconds = self._pause(failure, attempt)
        if wait_seconds is None or wait_seconds >= remaining_seconds:
            return None
        return wait_seconds

    def _pause(self, failure: grpc.RpcError, attempt: int) -> float | None:
        if failure.code() is grpc.StatusCode.UNAVAILABLE:
            doubled = math.ldexp(self.first_backoff_seconds, min(attempt - 1, 64))
            return min(doubled, self.backoff_seconds_max)
        if failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return pushback_seconds(failure)
        return None
