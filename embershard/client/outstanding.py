"""The requests of a stream that wait for their answers. No clock, no lock, no thread."""

import itertools
import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from embershard._proto import predictor_pb2 as pb
from embershard.client.packing import Inputs
from embershard.client.prediction import ServedModel

Future = TypeVar("Future")

CLOSE_SECONDS = 1.0
"""For a stream to end once all its requests are answered."""

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


class Outstanding(dict[str, Waiting[Future]]):
    """By the ids under which they go over the wire: ``<number>/<the caller's own>``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @property
    def next_deadline(self) -> float:
        """Of any that waits. Infinity: none does."""
        return min((each.deadline for each in self.values()), default=math.inf)

    @property
    def last_deadline(self) -> float:
        """Of all that wait. 0: none does."""
        return max((each.deadline for each in self.values()), default=0.0)

    def add(self, waiting: Waiting[Future]) -> None:
        """Gives its request an id that no other of the stream has."""
        wire_id = f"{next(self._numbers)}/{waiting.request_id}"
        waiting.request.request_id = wire_id
        self[wire_id] = waiting

    def take_late(self, now: float = math.inf) -> list[Waiting[Future]]:
        """Those whose deadline has passed; by default all."""
        late = [key for key, each in self.items() if each.deadline <= now]
        return [self.pop(key) for key in late]
