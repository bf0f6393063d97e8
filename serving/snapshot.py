"""What a running server counts, in the form in which the extension hands it out."""

from __future__ import annotations

from typing import TypedDict

__all__ = [
    "Device",
    "Histogram",
    "NativeSnapshot",
    "Outcome",
    "Queued",
    "Recorded",
    "Shadow",
    "Slow",
    "SlowRequest",
    "Snapshot",
    "VersionSnapshot",
]


class Outcome(TypedDict):
    """Requests that ended alike."""

    code: str
    """As gRPC names it: ``OK``, ``INVALID_ARGUMENT``, ..."""
    reason: str
    """Why, of a closed set. Empty: answered."""
    priority: str
    """``interactive``, or ``batch``."""
    count: int


class Histogram(TypedDict):
    """Observations, counted by the least bound that they do not exceed."""

    bounds: list[float]
    """Upper bounds, ascending."""
    counts: list[int]
    """One for each bound, not cumulative, and one for what exceeds them all."""
    sum: float


class Queued(TypedDict):
    """What waits now."""

    requests: int
    examples: int
    ids: int
    bytes: int


class Device(TypedDict):
    """A device of the plan, and what it has looked up."""

    name: str
    table_bytes: int
    lookup_seconds: float
    batches: int
    rows: int


class Slow(TypedDict):
    """Requests above the threshold: all of them, and those that nobody fetched in time."""

    seen: int
    dropped: int


class Shadow(TypedDict):
    """Copies of requests to a version, where it is the shadow of another."""

    sent: int
    """Of requests that were answered well."""
    dropped: dict[str, int]
    """Sampled requests that were not copied, by reason: ``schema`` (its inputs or outputs are not
    the same), ``copies_under_way`` and ``bytes_under_way`` (as many as there may be)."""
    failed: int
    """Of those sent: not answered."""
    batch_seconds: float
    """For which batches of copies were under way, where it is only a shadow."""
    cpu_seconds: float
    """Of these: for which their thread had a processor."""


class VersionSnapshot(TypedDict):
    """One version, everything since it was loaded, as of one moment."""

    model: str
    version: int
    labels: list[str]
    is_default: bool
    """Whether it answers requests that name no version."""
    start_unix_seconds: float
    requests: list[Outcome]
    """Every pair of code and reason that there can be with each priority, in the same order each
    time."""
    histograms: dict[str, Histogram]
    examples: int
    """Of answered requests."""
    batches: int
    reruns: int
    """Runs of parts of batches for which the model had failed."""
    compute_seconds: float
    """Lookup and dense program of the batch that a request was in, summed over answered requests:
    a batch of ten counts ten times."""
    unknown_ids: dict[str, int]
    """By sparse input."""
    bytes_received: int
    bytes_sent: int
    queued: Queued
    in_flight: int
    devices: list[Device]
    shadow: Shadow
    max_batch_examples: int
    slots: int
    """Batches that may run at once."""


class Snapshot(VersionSnapshot):
    """A server, everything since its start, as of one moment: sums over its versions, those that
    it has let go included, and what belongs to none.

    Of several models, ``model`` says how many, and ``version`` is 0; so it is of a model without a
    default version."""

    versions: list[VersionSnapshot]
    """Those that are served, models and versions ascending."""
    unserved: list[Outcome]
    """Requests for what is not served. They are in ``requests`` too."""
    open_streams: int
    connections_refused: int
    """For want of room, see `ServerOptions.max_connections`."""
    slow: Slow
    refused_calls: int
    """Calls without the server's token; no part of the requests above."""
    load_failures: int
    """Versions, or labels files, that could not be loaded."""
    certificate_expires_unix_seconds: int
    """That of new connections. 0: without TLS."""
    log_lines_dropped: int
    """By the log of ``embershard serve``. 0: without one."""


class NativeSnapshot(TypedDict):
    """What the extension hands out: versions, and what belongs to none of them."""

    versions: list[VersionSnapshot]
    unserved: list[Outcome]
    in_flight: int
    bytes_received: int
    start_unix_seconds: float
    open_streams: int
    connections_refused: int
    slow: Slow
    refused_calls: int
    certificate_expires_unix_seconds: int
    answered_by_ended: int
    """Requests that were answered well by versions which have ended."""


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
