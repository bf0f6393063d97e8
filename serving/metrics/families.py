"""Every metric of a server. docs/metrics.md says how to read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from embershard.serving.metrics.family import Family, Rows
from embershard.serving.snapshot import Outcome, Snapshot, VersionSnapshot

__all__ = ["FAMILIES"]

# What Triton calls the ways in which a request fails; any other is OTHER.
TRITONS_REASONS = {
    "queue_full": "REJECTED",
    "no_time": "REJECTED",
    "expired": "REJECTED",
    "shutting_down": "REJECTED",
    "abandoned": "CANCELED",
    "model_failed": "BACKEND",
    "not_finite": "BACKEND",
    "out_of_memory": "BACKEND",
}


def _counter(name: str, about: str, of: Callable[[VersionSnapshot], float]) -> Family:
    return Family(kind="counter", name=name, about=about, rows=_one(of))


def _gauge(name: str, about: str, of: Callable[[VersionSnapshot], float]) -> Family:
    return Family(kind="gauge", name=name, about=about, rows=_one(of))


def _of_server(
    kind: Literal["counter", "gauge"], name: str, about: str, of: Callable[[Snapshot], float]
) -> Family:
    return Family(
        kind=kind, name=name, about=about, server_rows=lambda snapshot: [((), of(snapshot))]
    )


def _tritons(name: str, about: str, of: Callable[[VersionSnapshot], float]) -> Family:
    return Family(kind="untyped", name=name, about=about, rows=_one(of))


def _one(of: Callable[[VersionSnapshot], float]) -> Callable[[VersionSnapshot], Rows]:
    return lambda snapshot: [((), of(snapshot))]


def _histogram(name: str, about: str, key: str) -> Family:
    return Family(
        kind="histogram",
        name=name,
        about=about,
        rows=lambda snapshot: [((), snapshot["histograms"][key])],
    )


def _device(
    kind: Literal["counter", "gauge"],
    name: str,
    about: str,
    key: Literal["table_bytes", "lookup_seconds", "batches", "rows"],
) -> Family:
    return Family(
        kind=kind,
        name=name,
        about=about,
        labels=("device",),
        rows=lambda snapshot: [((each["name"],), each[key]) for each in snapshot["devices"]],
    )


def _requests(snapshot: VersionSnapshot) -> Rows:
    return _outcomes(snapshot["requests"])


def _outcomes(outcomes: list[Outcome]) -> Rows:
    return [((each["code"], each["reason"], each["priority"]), each["count"]) for each in outcomes]


def _unknown_ids(snapshot: VersionSnapshot) -> Rows:
    return [((name,), count) for name, count in snapshot["unknown_ids"].items()]


def _answered(snapshot: VersionSnapshot) -> int:
    return sum(each["count"] for each in snapshot["requests"] if each["code"] == "OK")


def _failures(snapshot: VersionSnapshot) -> Rows:
    found = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
    for each in snapshot["requests"]:
        if each["code"] != "OK":
            found[TRITONS_REASONS.get(each["reason"], "OTHER")] += each["count"]
    return [((reason,), count) for reason, count in found.items()]


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


OURS = (
    Family(
        kind="info",
        name="embershard_served_version",
        about="1 for each version of a model that is served.",
        rows=_one(lambda _: 1),
    ),
    _gauge(
        "embershard_default_version",
        "1 if the version answers requests that name no version, else 0.",
        lambda snapshot: int(snapshot["is_default"]),
    ),
    _of_server(
        "counter",
        "embershard_load_failures",
        "Versions, or labels files, that could not be loaded.",
        lambda snapshot: snapshot["load_failures"],
    ),
    _gauge(
        "embershard_start_time_seconds",
        "When the server began to count, in seconds since 1970.",
        lambda snapshot: snapshot["start_unix_seconds"],
    ),
    Family(
        kind="counter",
        name="embershard_requests",
        about="Requests that ended, by gRPC code, reason and priority.",
        labels=("code", "reason", "priority"),
        rows=_requests,
    ),
    _counter(
        "embershard_examples",
        "Examples of answered requests.",
        lambda snapshot: snapshot["examples"],
    ),
    _counter("embershard_batches", "Batches that ran.", lambda snapshot: snapshot["batches"]),
    _counter(
        "embershard_batch_reruns",
        "Runs of parts of batches for which the model had failed.",
        lambda snapshot: snapshot["reruns"],
    ),
    Family(
        kind="counter",
        name="embershard_unserved_requests",
        about="Requests for a model, version or label that is not served, by gRPC code and reason.",
        labels=("code", "reason", "priority"),
        server_rows=lambda snapshot: _outcomes(snapshot["unserved"]),
    ),
    Family(
        kind="counter",
        name="embershard_unknown_ids",
        about="Ids that the model does not know, by sparse input.",
        labels=("feature",),
        rows=_unknown_ids,
    ),
    _counter(
        "embershard_received_bytes",
        "Serialized size of requests.",
        lambda snapshot: snapshot["bytes_received"],
    ),
    _counter(
        "embershard_sent_bytes",
        "Serialized size of answers.",
        lambda snapshot: snapshot["bytes_sent"],
    ),
    _histogram(
        "embershard_request_seconds",
        "From arrival to answer, of answered requests.",
        "request_seconds",
    ),
    _histogram(
        "embershard_queue_seconds",
        "Wait for a batch, of requests that ran.",
        "queue_seconds",
    ),
    _histogram("embershard_lookup_seconds", "Lookups of a batch.", "lookup_seconds"),
    _histogram("embershard_dense_seconds", "Dense program of a batch.", "dense_seconds"),
    _histogram("embershard_batch_examples", "Examples in a batch.", "batch_examples"),
    _histogram("embershard_batch_requests", "Requests in a batch.", "batch_requests"),
    _histogram(
        "embershard_batch_fill_ratio",
        "Examples in a batch, as a share of the most that are merged; at most 1.",
        "batch_fill",
    ),
    _histogram("embershard_request_ids", "Ids in a request that passed the checks.", "request_ids"),
    _histogram(
        "embershard_request_examples",
        "Examples in a request that passed the checks.",
        "request_examples",
    ),
    _gauge(
        "embershard_queued_requests",
        "Requests waiting for a batch.",
        lambda snapshot: snapshot["queued"]["requests"],
    ),
    _gauge(
        "embershard_queued_examples",
        "Examples waiting for a batch.",
        lambda snapshot: snapshot["queued"]["examples"],
    ),
    _gauge(
        "embershard_queued_ids",
        "Ids waiting for a batch.",
        lambda snapshot: snapshot["queued"]["ids"],
    ),
    _gauge(
        "embershard_queued_bytes",
        "Memory of the messages waiting for a batch.",
        lambda snapshot: snapshot["queued"]["bytes"],
    ),
    _gauge(
        "embershard_in_flight_requests",
        "Requests that have arrived and are not answered.",
        lambda snapshot: snapshot["in_flight"],
    ),
    _of_server(
        "gauge",
        "embershard_open_streams",
        "PredictStream calls that are open.",
        lambda snapshot: snapshot["open_streams"],
    ),
    _of_server(
        "counter",
        "embershard_connections_refused",
        "Connections hung up on as they came, since as many were open as may be.",
        lambda snapshot: snapshot["connections_refused"],
    ),
    _gauge(
        "embershard_batch_examples_max",
        "Most examples that a batch may hold.",
        lambda snapshot: snapshot["max_batch_examples"],
    ),
    _gauge("embershard_slots", "Batches that may run at once.", lambda snapshot: snapshot["slots"]),
    _device("gauge", "embershard_table_bytes", "Table rows on a device.", "table_bytes"),
    _device(
        "counter",
        "embershard_device_lookup_seconds",
        "Time a device spent on lookups.",
        "lookup_seconds",
    ),
    _device(
        "counter",
        "embershard_device_batches",
        "Batches that a device looked rows up for.",
        "batches",
    ),
    _device("counter", "embershard_device_rows", "Rows that a device looked up.", "rows"),
    _counter(
        "embershard_shadow_requests",
        "Copies of requests that this version got as the shadow of another.",
        lambda snapshot: snapshot["shadow"]["sent"],
    ),
    _counter(
        "embershard_shadow_compared",
        "Of the copies, those whose scores were compared with the ones given.",
        lambda snapshot: sum(snapshot["histograms"]["shadow_difference"]["counts"]),
    ),
    Family(
        kind="counter",
        name="embershard_shadow_dropped",
        about="Requests in the sample that were not copied to it, by reason.",
        labels=("reason",),
        rows=lambda snapshot: [
            ((reason,), count) for reason, count in snapshot["shadow"]["dropped"].items()
        ],
    ),
    _counter(
        "embershard_shadow_failed",
        "Of the copies, those that it did not answer.",
        lambda snapshot: snapshot["shadow"]["failed"],
    ),
    _counter(
        "embershard_shadow_batch_seconds",
        "Time for which batches of copies were under way, where it is only a shadow.",
        lambda snapshot: snapshot["shadow"]["batch_seconds"],
    ),
    _counter(
        "embershard_shadow_cpu_seconds",
        "Of this time, that for which their thread had a processor.",
        lambda snapshot: snapshot["shadow"]["cpu_seconds"],
    ),
    _histogram(
        "embershard_shadow_difference",
        "Largest difference of a score of a copy from the one given, of copies answered.",
        "shadow_difference",
    ),
    _of_server(
        "counter",
        "embershard_slow_requests",
        "Requests above the threshold of the slow log.",
        lambda snapshot: snapshot["slow"]["seen"],
    ),
    _of_server(
        "counter",
        "embershard_slow_requests_dropped",
        "Of these, those that the log had no room for.",
        lambda snapshot: snapshot["slow"]["dropped"],
    ),
    _of_server(
        "counter",
        "embershard_log_lines_dropped",
        "Lines that the log dropped: its reader was too slow, or took none.",
        lambda snapshot: snapshot["log_lines_dropped"],
    ),
    _of_server(
        "counter",
        "embershard_unauthenticated_calls",
        "Calls without the server's token. They are no requests of a model.",
        lambda snapshot: snapshot["refused_calls"],
    ),
    _of_server(
        "gauge",
        "embershard_certificate_expiry_time_seconds",
        "When the certificate of new connections expires, in seconds since 1970; 0 without TLS.",
        lambda snapshot: snapshot["certificate_expires_unix_seconds"],
    ),
)

TRITONS = (
    _tritons("nv_inference_request_success", "Requests answered.", _answered),
    Family(
        kind="untyped",
        name="nv_inference_request_failure",
        about="Requests not answered, by Triton's reasons.",
        labels=("reason",),
        rows=_failures,
    ),
    _tritons(
        "nv_inference_count",
        "Examples of answered requests.",
        lambda snapshot: snapshot["examples"],
    ),
    _tritons("nv_inference_exec_count", "Batches that ran.", lambda snapshot: snapshot["batches"]),
    _tritons(
        "nv_inference_request_duration_us",
        "From arrival to answer, summed over answered requests.",
        lambda snapshot: _microseconds(snapshot["histograms"]["request_seconds"]["sum"]),
    ),
    _tritons(
        "nv_inference_queue_duration_us",
        "Wait for a batch, summed over requests that ran.",
        lambda snapshot: _microseconds(snapshot["histograms"]["queue_seconds"]["sum"]),
    ),
    _tritons(
        "nv_inference_compute_infer_duration_us",
        "Lookups and dense program of its batch, summed over answered requests.",
        lambda snapshot: _microseconds(snapshot["compute_seconds"]),
    ),
    _gauge(
        "nv_inference_pending_request_count",
        "Requests waiting for a batch.",
        lambda snapshot: snapshot["queued"]["requests"],
    ),
)

FAMILIES = (*OURS, *TRITONS)
"""In the order of exposition."""
