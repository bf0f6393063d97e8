"""Requests that a server kept: slow ones, and those in a recording."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["Recorded", "SlowRequest"]


class SlowRequest(TypedDict):
    """One request above the threshold. Texts come from its client or quote it: trust none."""

    unix_seconds: float
    code: str
    reason: str
    message: str
    examples: int
    ids: int
    bytes: int
    peer: str
    traceparent: str
    request_id: str
    queue_us: int
    lookup_us: int
    dense_us: int
    total_us: int


class Recorded(TypedDict):
    """How far a recording is."""

    recorded: int
    """Requests in the file."""

    dropped: int
    """Sampled, and left out for want of memory, or because of the problem."""

    bytes: int
    """Of the file."""

    problem: str
    """Why it ended before its time. Empty: it did not."""
