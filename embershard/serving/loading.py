"""What a server reports: of loads and unloads, and of requests that it recorded."""

from dataclasses import dataclass
from typing import Literal, TypedDict


class LoadCost(TypedDict):
    """What a load or an unload took."""

    seconds: float
    unserved_seconds: float
    """Of these, without any version of the model that answered."""


class IndexEntry(TypedDict):
    """A version in the repository."""

    model: str
    version: int
    labels: list[str]
    """As served: a label that was given to a version that could not be loaded is still where it
    was."""
    is_default: bool
    """Whether it answers requests that name no version."""
    state: Literal["unloaded", "loading", "ready", "failed"]
    reason: str
    """Why it is not ready; of a ``ready`` one, how the repository differs from what is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEvent:
    """Something that became of a version."""

    what: str
    """``loaded``, ``program`` (its dense program was chosen from several), ``load_failed``,
    ``serving`` (it answers now who names no version), ``replaced``, ``unloaded`` or
    ``differs_on_disk`` (it is served, and the repository holds another package or none)."""
    model: str
    """Empty where the repository could not be looked at."""
    version: int
    """0: none in particular, as where labels cannot be followed."""
    seconds: float
    """That it took, where it takes time. ``replaced``: in which nothing of the model answered."""
    message: str
    """Why it failed. ``program``: which dense program was chosen, and why. ``differs_on_disk``:
    how it differs."""


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
