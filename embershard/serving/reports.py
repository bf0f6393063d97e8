"""Reports of a server about loads, unloads, slow requests and its recording."""

from dataclasses import dataclass
from typing import Literal, TypedDict


class LoadCost(TypedDict):
    seconds: float
    unserved_seconds: float
    """Part of `seconds` in which no version of the model answered."""


class IndexEntry(TypedDict):
    """A version that is in the repository, or served although its folder is gone."""

    model: str
    version: int
    labels: list[str]
    """Labels as they are served. A label that was moved to a version that failed to load stays on
    its old version."""
    is_default: bool
    """True if it answers requests that name no version."""
    state: Literal["unloaded", "loading", "ready", "failed"]
    reason: str
    """Why it is not ready, or how a ready version differs from the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEvent:
    """A change of the state of a version."""

    what: str
    """The kind of event.

    =================== ==========================================================================
    ``loaded``          the version is in memory
    ``program``         its dense program does not run as it was exported
    ``load_failed``     it, or a file of labels, could not be loaded
    ``serving``         it answers requests that name no version from now on
    ``unloaded``        it is no longer served
    ``replaced``        a load with ``replace`` has ended, which first unloaded the served versions
    ``differs_on_disk`` it is served, but the repository holds another package or none
    =================== ==========================================================================
    """
    model: str
    """Empty if a refresh could not read the repository."""
    version: int
    """0 if the event is not about one version, such as labels that cannot be read."""
    seconds: float
    """Duration. For ``replaced``, the time in which no version of the model answered."""
    message: str
    """Reason of a failure or a choice of program. ``differs_on_disk``: the difference."""


class SlowRequest(TypedDict):
    """One request above the threshold. Its texts come from the client and are not trustworthy."""

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
    """The progress of a recording."""

    recorded: int

    dropped: int
    """Number of sampled requests that are missing, for lack of memory or because of `problem`."""

    bytes: int

    problem: str
    """Why the recording ended early. Empty if it did not."""
