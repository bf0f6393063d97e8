"""Metrics of servers that do not exist: every figure is known, and differs from every other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from embershard.serving import DenseProgram, ServedPackage
from embershard.serving.metric import Histogram, Metric, Metrics, example_metrics

SECONDS = [0.001, 0.002, 0.005, 0.01]
COUNTS = [1.0, 2.0, 4.0, 8.0, 16.0]
SHARES = [0.1, 0.25, 0.5, 1.0]

# Sparse inputs, devices and reasons that the example has none of.
ROWS = {
    "embershard_unknown_ids": {"user": 0, "item": 0},
    "embershard_table_bytes": {"cpu:0": 640, "cpu:1": 320},
    "embershard_device_lookup_seconds": {"cpu:0": 0, "cpu:1": 0},
    "embershard_device_batches": {"cpu:0": 0, "cpu:1": 0},
    "embershard_device_rows": {"cpu:0": 0, "cpu:1": 0},
}
START = {
    "embershard_default_version": 1,
    "embershard_start_time_seconds": 1_700_000_000.25,
    "embershard_batch_examples_max": 16,
    "embershard_slots": 2,
    **ROWS,
}


def histogram(bounds, counts=None, total=0.0):
    return Histogram(bounds, counts or [0] * (len(bounds) + 1), total)


HISTOGRAMS = {
    f"embershard_{name}": histogram(bounds)
    for bounds, names in (
        (SECONDS, ("request_seconds", "queue_seconds", "lookup_seconds", "dense_seconds")),
        (COUNTS, ("batch_examples", "batch_requests", "request_ids", "request_examples")),
        (SHARES, ("batch_fill_ratio",)),
        (SECONDS, ("shadow_difference",)),
    )
    for name in names
}
BUSY = {
    "embershard_examples": 91,
    "embershard_batches": 11,
    "embershard_batch_reruns": 12,
    "embershard_unknown_ids": {"user": 17, "item": 26},
    "embershard_received_bytes": 123_456,
    "embershard_sent_bytes": 65_432,
    "embershard_request_seconds": histogram(SECONDS, [10, 20, 7, 2, 1], 0.1875),
    "embershard_queue_seconds": histogram(SECONDS, [30, 5, 4, 3, 0], 0.0625),
    "embershard_lookup_seconds": histogram(SECONDS, [9, 2, 0, 0, 0], 0.03125),
    "embershard_dense_seconds": histogram(SECONDS, [0, 6, 5, 0, 0], 0.046875),
    "embershard_batch_examples": histogram(COUNTS, [1, 0, 2, 3, 4, 1], 93),
    "embershard_batch_requests": histogram(COUNTS, [3, 3, 5, 0, 0, 0], 29),
    "embershard_batch_fill_ratio": histogram(SHARES, [3, 3, 4, 1, 0], 5.8125),
    "embershard_request_ids": histogram(COUNTS, [8, 8, 8, 8, 8, 3], 500),
    "embershard_request_examples": histogram(COUNTS, [20, 10, 6, 5, 2, 0], 111),
    "embershard_shadow_difference": histogram(SECONDS, [5, 3, 2, 1, 0], 0.0078125),
    "embershard_queued_requests": 14,
    "embershard_queued_examples": 15,
    "embershard_queued_ids": 161,
    "embershard_queued_bytes": 1024,
    "embershard_in_flight_requests": 18,
    "embershard_device_lookup_seconds": {"cpu:0": 0.25, "cpu:1": 0.125},
    "embershard_device_batches": {"cpu:0": 11, "cpu:1": 10},
    "embershard_device_rows": {"cpu:0": 701, "cpu:1": 702},
    "embershard_shadow_requests": 51,
    "embershard_shadow_dropped": {"schema": 52, "copies_under_way": 54, "bytes_under_way": 55},
}
OF_SERVER = {
    "embershard_open_streams": 12,
    "embershard_connections_refused": 44,
    "embershard_slow_requests": 19,
}
REQUESTS = {
    "": (40, 26),
    "malformed": (39, 25),
    "refused": (38, 24),
    "not_found": (37, 23),
    "stale_schema": (36, 22),
    "too_large": (35, 21),
    "queue_full": (34, 20),
    "deadline_infeasible": (33, 19),
    "expired": (32, 18),
    "abandoned": (31, 17),
    "shutting_down": (30, 16),
    "model_failed": (29, 15),
    "not_finite": (28, 14),
    "out_of_memory": (27, 13),
}
"""Interactive and background requests that ended, by reason."""


def of_version(figures: Mapping[str, object], *, model="ranker", version=3, requests=None):
    """Metrics of one version; those without a figure are 0.

    Args:
        figures: a dict by the values of the metric's own label, if it has one.
        requests: in the form of `REQUESTS`.
    """
    served = {"model": model, "version": str(version)}
    figures = {**START, **HISTOGRAMS, **figures}
    for name, same in groupby(example_metrics(), key=lambda item: item.name):
        for example in same:
            if "version" not in example.labels:
                continue
            own = {k: v for k, v in example.labels.items() if k not in served}
            if name == "embershard_requests":
                of_priorities = (requests or {}).get(own["reason"], (0, 0))
                yield example._replace(
                    labels={**served, **own},
                    value=of_priorities[own["priority"] == "background"],
                )
            elif isinstance(rows := figures.get(name, 0), Mapping):
                (label,) = own
                yield from (
                    example._replace(labels={**served, label: value}, value=count)
                    for value, count in rows.items()
                )
                break
            else:
                yield example._replace(labels={**served, **own}, value=rows)


def of_server(figures: Mapping[str, object] = {}) -> list[Metric]:
    """Metrics that belong to no version."""
    return [
        example_metric._replace(value=figures.get(example_metric.name, 0))
        for example_metric in example_metrics()
        if "version" not in example_metric.labels
    ]


def empty() -> Metrics:
    """A server of one version that has received no request yet."""
    return Metrics([*of_version({}), *of_server()])


def busy(**changed: object) -> Metrics:
    """The same server later.

    Args:
        changed: figures of the version, without ``embershard_``.
    """
    figures = {**BUSY, **{f"embershard_{name}": value for name, value in changed.items()}}
    return Metrics([*of_version(figures, requests=REQUESTS), *of_server(OF_SERVER)])


LONG = "candidate_ranking_with_cross_features_of_the_european_marketplace"
CROWD = [
    (model, 20_261_123_000 + number)
    for model in (LONG, f"{LONG}_on_mobile_devices")
    for number in range(4)
]


def crowded() -> Metrics:
    """Eight versions of two models, and names as long as they get, without a space."""
    figures = {
        **BUSY,
        "embershard_examples": 9_876_543_210_000,
        "embershard_unknown_ids": {f"{LONG}_{number}": 9_876_543_210 for number in range(30)},
        "embershard_table_bytes": {f"cpu:{number}": 987_654_321_000 for number in range(8)},
        "embershard_device_lookup_seconds": {f"cpu:{number}": 98_765.4 for number in range(8)},
        "embershard_device_rows": {f"cpu:{number}": 9_876_543_210_000 for number in range(8)},
    }
    requests = dict.fromkeys(REQUESTS, (9_876_543_210, 9_876_543_210))
    return Metrics(
        [
            *(
                metric
                for model, version in CROWD
                for metric in of_version(figures, model=model, version=version, requests=requests)
            ),
            *of_server(OF_SERVER),
        ]
    )


def served(model="ranker", version=3, *labels: str, is_default=True) -> ServedPackage:
    return ServedPackage(
        model=model,
        version=version,
        folder=Path(),
        labels=labels,
        is_default=is_default,
        program=DenseProgram(target="cpu", why="no other fits"),
    )


def crowd() -> list[ServedPackage]:
    labels = ["stable", "canary", "shadow", "rollback_of_last_quarter"]
    return [
        served(model, version, *labels[: number % 5], is_default=number == 1)
        for number, (model, version) in enumerate(CROWD)
    ]


@dataclass
class FakeServer:
    """A server as `MetricsPort` sees it."""

    now: Metrics = field(default_factory=empty)
    state: str = "serving"
    packages: list[ServedPackage] = field(default_factory=lambda: [served("ranker", 3, "stable")])
    reads: int = 0

    def metrics(self) -> Metrics:
        self.reads += 1
        return self.now
