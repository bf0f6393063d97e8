"""The requests of a run, and how it sends them."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from embershard.errors import InputError

Protocol = Literal["embershard", "oip", "torchrec"]

PROTOCOLS: Final = get_args(Protocol)

RATE_MAX: Final = 10_000_000
"""The highest rate of an open loop, in requests per second."""


@dataclass(frozen=True, slots=True)
class PooledRequest:
    """A serialized ``PredictRequest``, drawn or recorded. A run sends its pool in turn."""

    message: bytes
    examples: int
    ids: int

    due_seconds: float = 0.0
    """With recorded times: when it is sent, counted from the first of its pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a run sends. One of ``rate``, ``recorded_times`` and ``in_flight``.

    Raises:
        InputError: several or none of the three, or a number out of range.
    """

    rate: float | None = None
    """Open loop: requests per second at random times, whatever the server does."""

    recorded_times: bool = False
    """Open loop: when the requests of the pool are due; all of it again after the last."""

    in_flight: int | None = None
    """Closed loop: requests that wait for an answer at any time."""

    duration_seconds: float = 10.0
    """Length of the measured part."""

    max_requests: int = 1_000_000
    """Measured ones; the run ends with whichever comes first."""

    warmup_seconds: float = 1.0
    """Sent before and not counted."""

    timeout_seconds: float = 1.0
    """Deadline of a request, from its scheduled time."""

    max_in_flight: int = 4096
    """Open loop: with so many unanswered, requests leave late, and the wait counts."""

    threads: int = 1
    """Each sends with one thread and receives with another."""

    connections: int = 1
    """Connections of each thread."""

    streams: int = 0
    """Requests go over so many streams (PredictStream), in turn. 0: a call for each (Predict)."""

    protocol: Protocol = "embershard"
    """Our own, or, for calls only, "oip", the Open Inference Protocol, or "torchrec", that of
    TorchRec's inference server."""

    seed: int = 0

    def __post_init__(self) -> None:
        if (self.rate is not None) + (self.in_flight is not None) + self.recorded_times != 1:
            raise InputError("expected one of: a rate, recorded times, a number in flight")
        _check("rate", self.rate, 0.001, RATE_MAX)
        _check("in_flight", self.in_flight, 1, 100_000)
        _check("max_in_flight", self.max_in_flight, 1, 100_000)
        _check("duration", self.duration_seconds, 0.01, 86_400)
        _check("requests", self.max_requests, 1, 10**12)
        _check("warmup", self.warmup_seconds, 0, 3_600)
        _check("timeout", self.timeout_seconds, 0.001, 3_600)
        _check("threads", self.threads, 1, 64)
        _check("connections", self.connections, 1, 64)
        _check("streams", self.streams, 0, 10_000)
        _check("seed", self.seed, 0, 1 << 62)
        if self.threads > min(self.calls, self.max_requests):
            raise InputError(
                f"threads: expected at most as many as requests in flight, got {self.threads}"
            )
        if self.protocol not in PROTOCOLS:
            raise InputError(
                f"protocol: expected one of {', '.join(PROTOCOLS)}, got {self.protocol!r}"
            )
        if self.streams and self.protocol != "embershard":
            raise InputError(f"streams: expected none with protocol {self.protocol!r}")
        if self.streams and not self.threads <= self.streams <= self.calls:
            raise InputError(
                "streams: expected at least one a thread, and at most as many as requests in "
                f"flight, got {self.streams}"
            )

    @property
    def is_open(self) -> bool:
        """True if requests leave when they are due, whatever the server does."""
        return self.in_flight is None

    @property
    def calls(self) -> int:
        """Most requests that are unanswered at any time."""
        return self.in_flight if self.in_flight is not None else self.max_in_flight


def _check(name: str, value: float | None, low: float, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise InputError(f"{name}: expected {low:g} .. {high}, got {_shown(value)}")


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
