"""A separate HTTP port for the metrics and the status page of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from embershard.errors import ConfigError
from embershard.serving.metric import Histogram, Metric, Metrics, log_lines_dropped
from embershard.serving.metrics.history import QUANTILES, REQUESTS, TIMES, History, Totals
from embershard.serving.metrics.http_server import Handler, HttpServer, Response
from embershard.serving.repository import ServedPackage

if TYPE_CHECKING:
    from embershard.serving import Server


PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/format.js": ("format.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

TOTALS: Final = {
    "examples": "embershard_examples",
    "batches": "embershard_batches",
    "bytes_received": "embershard_received_bytes",
    "bytes_sent": "embershard_sent_bytes",
    "slow_requests": "embershard_slow_requests",
    "connections_refused": "embershard_connections_refused",
}
DEVICES: Final = {
    "table_bytes": "table_bytes",
    "lookup_seconds": "device_lookup_seconds",
    "rows": "device_rows",
}
REQUEST_LABELS: Final = ("code", "reason", "priority")


def page_routes(status: Callable[[int], dict[str, Any]]) -> dict[str, Handler]:
    """Handlers by path. ``status`` returns `status_json` for a number of samples."""
    folder = files("embershard.serving.metrics") / "page"

    def file(name: str, content_type: str) -> Handler:
        response = Response(content_type=content_type, body=(folder / name).read_bytes())
        return lambda _: response

    def answer(query: str) -> Response:
        after = parse_qs(query).get("after", ["0"])[-1]
        known = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else 0
        body = json.dumps(status(known)).encode()
        return Response(content_type="application/json", body=body)

    pages = {path: file(name, content_type) for path, (name, content_type) in PAGE.items()}
    return {**pages, "/status.json": answer}


def status_json(
    metrics: Metrics,
    packages: Sequence[ServedPackage],
    state: str,
    history: History,
    *,
    after: int = 0,
) -> dict[str, Any]:
    """The page's data: totals since the start, and the samples that it does not have yet.

    ``after`` is the number of samples that the page has.
    """
    models = sorted({package.model for package in packages})
    default = next((package.version for package in packages if package.is_default), 0)
    times = metrics.histogram(TIMES)
    samples = history.after(after)
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {
        "model": models[0] if len(models) == 1 else f"{len(models)} models",
        "version": default if len(models) == 1 else 0,
        "models": models,
        "state": state,
        "start_unix_seconds": history.start_unix_seconds,
        "unix_seconds": time.time(),
        "totals": {name: metrics.total(metric) for name, metric in TOTALS.items()},
        "requests": _requests(metrics),
        "unknown_ids": metrics.by("embershard_unknown_ids", "feature"),
        "devices": _devices(metrics),
        "versions": [_version(metrics, package) for package in packages],
        "quantiles": {name: times.quantile(share) for name, share in QUANTILES.items()},
        "taken": history.taken,
        "samples": {name: [_rounded(sample.get(name)) for sample in samples] for name in names},
    }


def _requests(metrics: Metrics) -> list[dict[str, object]]:
    """Ended requests for each combination of labels."""
    counts: dict[tuple[str, ...], float] = {}
    for name in REQUESTS:
        for metric in metrics.find(name):
            assert not isinstance(metric.value, Histogram)
            key = tuple(metric.labels[label] for label in REQUEST_LABELS)
            counts[key] = counts.get(key, 0) + metric.value
    return [
        {**dict(zip(REQUEST_LABELS, key, strict=True)), "count": count}
        for key, count in counts.items()
    ]


def _devices(metrics: Metrics) -> list[dict[str, object]]:
    columns = {
        column: metrics.by(f"embershard_{name}", "device") for column, name in DEVICES.items()
    }
    return [
        {"name": device, **{column: values.get(device, 0) for column, values in columns.items()}}
        for device in columns["rows"]
    ]


def _version(metrics: Metrics, package: ServedPackage) -> dict[str, Any]:
    labels = {"model": package.model, "version": package.version}
    differences = metrics.histogram("embershard_shadow_difference", **labels)
    sampled = ("embershard_shadow_requests", "embershard_shadow_dropped")
    return {
        **labels,
        "labels": package.labels,
        "is_default": package.is_default,
        "program": package.program.target,
        "program_why": package.program.why,
        "answered": metrics.total("embershard_requests", code="OK", **labels),
        "p99": metrics.histogram(TIMES, **labels).quantile(0.99),
        "shadow_sampled": sum(metrics.total(name, **labels) for name in sampled),
        "shadow_compared": differences.observations,
        "shadow_difference": differences.sum / differences.observations
        if differences.observations
        else None,
    }


def _rounded(value: float | None) -> float | None:
    """Round to six digits, or large values to a thousandth, which is enough for drawing."""
    if value is None or abs(value) >= 1e5:
        return None if value is None else round(value, 3)
    return float(f"{value:.6g}")


class MetricsPort(HttpServer):
    """Serves ``/metrics`` for Prometheus, ``/healthz`` for load balancers, and a page for people.

    Every client that connects can read everything and change nothing. Memory and waits are bounded,
    so that clients cannot harm the server.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind the port; 0 means a free port. Clients can connect after `show`.

        Raises ConfigError for a port outside 0..65535, UnavailableError if it cannot be bound.
        """
        if not 0 <= port <= 65535:
            raise ConfigError(f"metrics_port: expected 0..65535, got {port}")
        super().__init__(host=host, port=port)

    def show(self, server: Server, *, lines_dropped: Callable[[], int] = lambda: 0) -> None:
        """Start to answer, on a separate thread, until `close`.

        ``lines_dropped`` returns the number of lines that the log has dropped. Raises
        UnavailableError if another process listens on the port now.
        """
        totals = Totals()

        def metrics() -> Metrics:
            return Metrics([*server.metrics(), log_lines_dropped(lines_dropped())])

        def sums() -> Metrics:
            return totals.add(server.metrics())

        history = History(sums)
        text = exposition(metrics)

        def scrape(_: str) -> Response:
            return Response(content_type=CONTENT_TYPE_PLAIN_0_0_4, body=text())

        def health(_: str) -> Response:
            state = server.state
            status = 200 if state == "serving" else 503
            return Response(status=status, body=f"{state}\n".encode())

        def status(after: int) -> dict[str, Any]:
            return status_json(sums(), server.packages, server.state, history, after=after)

        routes = {**page_routes(status), "/metrics": scrape, "/healthz": health}
        self.start(routes, tick=history.take)


ENDINGS: Final = {"counter": "_total", "info": "_info"}
"""Suffixes that Prometheus adds to the name of a sample, by kind."""


def exposition(metrics: Callable[[], Metrics]) -> Callable[[], bytes]:
    """Make the function that returns the metrics of the server and of the process as text."""
    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


class Collector:
    """Collects the metrics of a server for a registry of prometheus-client."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for _, metrics in groupby(self._metrics(), key=lambda metric: metric.name):
            yield _family(list(metrics))


def _family(metrics: list[Metric]) -> Family:
    name, about, kind = metrics[0][:3]
    family = Family(name, about, kind)
    for metric in metrics:
        if not isinstance(metric.value, Histogram):
            value = 1.0 if kind == "info" else metric.value
            family.add_sample(name + ENDINGS.get(kind, ""), metric.labels, value)
            continue
        bounds = [*map(str, metric.value.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(metric.value.counts), strict=True):
            family.add_sample(f"{name}_bucket", {"le": bound, **metric.labels}, count)
        family.add_sample(f"{name}_count", metric.labels, metric.value.observations)
        family.add_sample(f"{name}_sum", metric.labels, metric.value.sum)
    return family
