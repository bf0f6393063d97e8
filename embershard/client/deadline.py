"""Deadlines, in seconds on the monotonic clock."""

from __future__ import annotations

import time

from embershard.client.arguments import check_timeout
from embershard.errors import DeadlineError

__all__ = ["deadline_in", "remaining_seconds", "timeout_ms"]


def deadline_in(timeout_seconds: float | None, *, default: float) -> float:
    """
    Args:
        timeout_seconds: None: the default.

    Raises:
        InputError: not above 0.
    """
    given = default if timeout_seconds is None else check_timeout(timeout_seconds)
    return time.monotonic() + given


def remaining_seconds(deadline: float, *, address: str) -> float:
    """Until a deadline; above 0.

    Raises:
        DeadlineError: it has passed.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise DeadlineError(f"{address}: the deadline passed before the request was sent")
    return remaining


def timeout_ms(deadline: float, *, address: str) -> int:
    """Until a time of the monotonic clock, as a request states it; at least 1.

    Raises:
        DeadlineError: it is over.
    """
    return max(1, int(remaining_seconds(deadline, address=address) * 1000))
