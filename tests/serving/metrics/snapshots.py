"""Snapshots made by hand, and something that hands them out as a server would."""

from dataclasses import dataclass, field

from embershard.serving.snapshot import Histogram, Snapshot, VersionSnapshot

SECONDS = [0.001, 0.002, 0.005, 0.01]
COUNTS = [1.0, 2.0, 4.0, 8.0, 16.0]
SHARES = [0.25, 0.5, 0.75, 1.0]

PAIRS = [
    ("OK", ""),
    ("INVALID_ARGUMENT", "malformed"),
    ("INVALID_ARGUMENT", "refused"),
    ("NOT_FOUND", "not_found"),
    ("FAILED_PRECONDITION", "stale_schema"),
    ("INVALID_ARGUMENT", "too_large"),
    ("RESOURCE_EXHAUSTED", "queue_full"),
    ("RESOURCE_EXHAUSTED", "no_time"),
    ("DEADLINE_EXCEEDED", "expired"),
    ("DEADLINE_EXCEEDED", "abandoned"),
    ("UNAVAILABLE", "shutting_down"),
    ("INTERNAL", "model_failed"),
    ("INTERNAL", "not_finite"),
    ("INTERNAL", "out_of_memory"),
]


def histogram(bounds: list[float], counts: list[int] | None = None, total: float = 0) -> Histogram:
    return {"bounds": bounds, "counts": counts or [0] * (len(bounds) + 1), "sum": total}


def empty() -> Snapshot:
    """A server of one version that nobody has asked yet."""
    return of_server(empty_version())


def of_server(version: VersionSnapshot) -> Snapshot:
    return {
        **version,
        "versions": [version],
        "unserved": [{**each, "count": 0} for each in version["requests"]],
        "open_streams": 0,
        "connections_refused": 0,
        "slow": {"seen": 0, "dropped": 0},
        "refused_calls": 0,
        "load_failures": 0,
        "certificate_expires_unix_seconds": 0,
        "log_lines_dropped": 0,
    }


def empty_version() -> VersionSnapshot:
    return {
        "model": "ranker",
        "version": 3,
        "labels": ["stable"],
        "is_default": True,
        "start_unix_seconds": 1_700_000_000.25,
        "requests": [
            {"code": code, "reason": reason, "priority": priority, "count": 0}
            for priority in ("interactive", "batch")
            for code, reason in PAIRS
        ],
        "histograms": {
            "request_seconds": histogram(SECONDS),
            "queue_seconds": histogram(SECONDS),
            "lookup_seconds": histogram(SECONDS),
            "dense_seconds": histogram(SECONDS),
            "batch_examples": histogram(COUNTS),
            "batch_requests": histogram(COUNTS),
            "batch_fill": histogram(SHARES),
            "request_ids": histogram(COUNTS),
            "request_examples": histogram(COUNTS),
            "shadow_difference": histogram(SECONDS),
        },
        "examples": 0,
        "batches": 0,
        "reruns": 0,
        "compute_seconds": 0.0,
        "unknown_ids": {"user": 0, "item": 0},
        "bytes_received": 0,
        "bytes_sent": 0,
        "queued": {"requests": 0, "examples": 0, "ids": 0, "bytes": 0},
        "in_flight": 0,
        "devices": [
            {"name": "cpu:0", "table_bytes": 640, "lookup_seconds": 0.0, "batches": 0, "rows": 0},
            {"name": "cpu:1", "table_bytes": 320, "lookup_seconds": 0.0, "batches": 0, "rows": 0},
        ],
        "shadow": {
            "sent": 0,
            "dropped": {"schema": 0, "copies_under_way": 0, "bytes_under_way": 0},
            "failed": 0,
            "batch_seconds": 0.0,
            "cpu_seconds": 0.0,
        },
        "max_batch_examples": 16,
        "slots": 2,
    }


def busy() -> Snapshot:
    """The same server later: every figure differs from every other."""
    snapshot = empty_version()
    for number, outcome in enumerate(snapshot["requests"]):
        outcome["count"] = 40 - number
    snapshot["histograms"].update(
        request_seconds=histogram(SECONDS, [10, 20, 7, 2, 1], 0.1875),
        queue_seconds=histogram(SECONDS, [30, 5, 4, 3, 0], 0.0625),
        lookup_seconds=histogram(SECONDS, [9, 2, 0, 0, 0], 0.03125),
        dense_seconds=histogram(SECONDS, [0, 6, 5, 0, 0], 0.046875),
        batch_examples=histogram(COUNTS, [1, 0, 2, 3, 4, 1], 93),
        batch_requests=histogram(COUNTS, [3, 3, 5, 0, 0, 0], 29),
        batch_fill=histogram(SHARES, [3, 3, 4, 1, 0], 5.8125),
        request_ids=histogram(COUNTS, [8, 8, 8, 8, 8, 3], 500),
        request_examples=histogram(COUNTS, [20, 10, 6, 5, 2, 0], 111),
        shadow_difference=histogram(SECONDS, [5, 3, 2, 1, 0], 0.0078125),
    )
    snapshot.update(
        examples=91,
        batches=11,
        reruns=12,
        compute_seconds=0.5,
        unknown_ids={"user": 17, "item": 26},
        bytes_received=123_456,
        bytes_sent=65_432,
        queued={"requests": 14, "examples": 15, "ids": 161, "bytes": 1024},
        in_flight=18,
        shadow={
            "sent": 51,
            "dropped": {"schema": 52, "copies_under_way": 54, "bytes_under_way": 55},
            "failed": 53,
            "batch_seconds": 0.75,
            "cpu_seconds": 0.375,
        },
    )
    first, second = snapshot["devices"]
    first.update(lookup_seconds=0.25, batches=11, rows=701)
    second.update(lookup_seconds=0.125, batches=10, rows=702)
    server = of_server(snapshot)
    server.update(
        open_streams=12,
        connections_refused=44,
        slow={"seen": 19, "dropped": 13},
        refused_calls=10,
        load_failures=9,
        certificate_expires_unix_seconds=1_900_000_000,
        log_lines_dropped=14,
    )
    return server


def crowded() -> Snapshot:
    """Eight versions of two models, and names as long as they get, without a space."""
    server = busy()
    long = "candidate_ranking_with_cross_features_of_the_european_marketplace"
    server["versions"] = [
        {
            **empty_version(),
            "model": model,
            "version": 20_261_123_000 + number,
            "labels": ["stable", "canary", "shadow", "rollback_of_last_quarter"][: number % 5],
            "is_default": number == 1,
            "requests": [{**each, "count": 987_654_321} for each in server["requests"]],
            "histograms": server["histograms"],
        }
        for model in (long, f"{long}_on_mobile_devices")
        for number in range(4)
    ]
    for outcome in server["requests"]:
        outcome["count"] = 9_876_543_210
    server["unknown_ids"] = {f"{long}_{number}": 9_876_543_210 for number in range(30)}
    server["devices"] = [
        {
            "name": f"cpu:{number}",
            "table_bytes": 987_654_321_000,
            "lookup_seconds": 98_765.4,
            "batches": 9_876_543_210,
            "rows": 9_876_543_210_000,
        }
        for number in range(8)
    ]
    server.update(examples=9_876_543_210_000, model="2 models", version=0)
    return server


@dataclass
class FakeServer:
    """What a `MetricsPort` shows."""

    now: Snapshot = field(default_factory=empty)
    state: str = "serving"
    snapshots_taken: int = 0

    def snapshot(self) -> Snapshot:
        self.snapshots_taken += 1
        return self.now
