"""Which failed calls are sent again, and when. No clock, no sleep, no call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import grpc

from embershard.client.status import pushback_seconds

__all__ = ["RetryRules"]


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
        """How long to wait before the next attempt.

        Args:
            failure: of the last attempt.
            attempt: its number, from 1.
            remaining_seconds: until the deadline of all attempts together.

        Returns:
            Seconds, less than remain. None: another attempt cannot help.
        """
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
