"""The requests of a run, and the options for sending them."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from embershard.errors import InputError

Protocol = Literal["embershard", "oip", "torchrec"]

PROTOCOLS: Final = get_args(Protocol)

RATE_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class PooledRequest:
    """A serialized request, drawn or recorded. A run sends the requests of its pool in turn."""

    message: bytes
    examples: int
    ids: int

    due_seconds: float = 0.0
    """Recorded arrival, in seconds after the first request of the pool. 0 for drawn requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a run sends requests. Exactly one of ``rate``, ``recorded_times`` and ``in_flight``.

    Raises:
        InputError: several or none of the three, or a number out of range.
    """

    rate: float | None = None
    """Open loop: requests per second, sent at random times however slow the server is."""

    recorded_times: bool = False
    """Open loop: requests are sent at their recorded times. After the last one the pool repeats."""

    in_flight: int | None = None
    """Closed loop: number of requests that wait for an answer at any time."""

    duration_seconds: float = 10.0
    """Length of the measured part, unless ``max_requests`` ends it earlier."""

    max_requests: int = 1_000_000
    """Number of measured requests after which the run ends."""

    warmup_seconds: float = 1.0
    """Length of the part before, which is not measured."""

    timeout_seconds: float = 1.0
    """Deadline of a request, from its scheduled time."""

    max_in_flight: int = 4096
    """Open loop: limit on unanswered requests. Further ones wait, and their latency counts that."""

    threads: int = 1
    """Number of pairs of threads: one sends, the other receives."""

    connections: int = 1
    """Connections of each pair of threads."""

    streams: int = 0
    """Number of streams (PredictStream) that requests use in turn. 0: one call (Predict) each."""

    protocol: Protocol = "embershard"
    """Protocol of the messages: our own, "oip" (Open Inference Protocol), or "torchrec" (that of
    TorchRec's inference server). Only our own has streams."""

    seed: int = 0

    def __post_init__(self) -> None:
        if (self.rate is not None) + (self.in_flight is not None) + self.recorded_times != 1:
            raise InputError(
                "expected exactly one of rate, recorded_times and in_flight, got "
                f"rate={self.rate}, recorded_times={self.recorded_times}, "
                f"in_flight={self.in_flight}"
            )
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
                f"threads: expected at most {min(self.calls, self.max_requests)}, the number of "
                f"requests in flight, got {self.threads}"
            )
        if self.protocol not in PROTOCOLS:
            raise InputError(
                f"protocol: expected one of {', '.join(PROTOCOLS)}, got {self.protocol!r}"
            )
        if self.streams and self.protocol != "embershard":
            raise InputError(
                f"streams: expected 0 with protocol {self.protocol!r}, got {self.streams}"
            )
        if self.streams and not self.threads <= self.streams <= self.calls:
            raise InputError(
                f"streams: expected {self.threads} (threads) .. {self.calls} (requests in flight), "
                f"got {self.streams}"
            )

    @property
    def is_open(self) -> bool:
        return self.in_flight is None

    @property
    def calls(self) -> int:
        return self.in_flight if self.in_flight is not None else self.max_in_flight


def _check(name: str, value: float | None, low: float, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise InputError(f"{name}: expected {low:g} .. {high}, got {_shown(value)}")


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
