"""The requests of a stream that wait for their answers. No clock, no lock, no thread."""

import itertools
import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from embershard._proto import predictor_pb2 as pb
from embershard.client.packing import Inputs
from embershard.client.prediction import ServedModel

Future = TypeVar("Future")

GRACE_SECONDS = 0.05
"""Behind a deadline: the server's own word on it tells more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Generic[Future]):
    """One request, and who waits for its answer."""

    future: Future
    request: pb.PredictRequest
    inputs: Inputs
    schema: ServedModel

    deadline: float
    """Seconds on the monotonic clock."""

    request_id: str
    """The caller's own."""


class Outstanding(Generic[Future]):
    """By the ids under which they go over the wire: ``<number>/<the caller's own>``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[str, Waiting[Future]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_deadline(self) -> float:
        """Of any that waits. Infinity: none does."""
        return min((each.deadline for each in self._waiting.values()), default=math.inf)

    @property
    def last_deadline(self) -> float:
        """Of all that wait. 0: none does."""
        return max((each.deadline for each in self._waiting.values()), default=0.0)

    def add(self, waiting: Waiting[Future]) -> None:
        """Gives its request an id that no other of the stream has."""
        wire_id = f"{next(self._numbers)}/{waiting.request_id}"
        waiting.request.request_id = wire_id
        self._waiting[wire_id] = waiting

    def has(self, wire_id: str) -> bool:
        """Whether it still waits."""
        return wire_id in self._waiting

    def take(self, wire_id: str) -> Waiting[Future] | None:
        """None: it waits no more, or never did."""
        return self._waiting.pop(wire_id, None)

    def take_late(self, now: float) -> list[Waiting[Future]]:
        """Those whose deadline has passed."""
        late = [key for key, each in self._waiting.items() if each.deadline <= now]
        return [self._waiting.pop(key) for key in late]

    def all(self) -> list[Waiting[Future]]:
        return list(self._waiting.values())

    def take_all(self) -> list[Waiting[Future]]:
        left = list(self._waiting.values())
        self._waiting.clear()
        return left
