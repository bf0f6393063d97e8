"""Metrics and the status page of a server, over HTTP, on a port of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final, Self

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from embershard.errors import ConfigError
from embershard.serving.metric import Histogram, Metric, Metrics, log_lines_dropped
from embershard.serving.metrics.history import History, Totals
from embershard.serving.metrics.http_server import HttpServer, Response
from embershard.serving.metrics.status import page_routes, status_json

if TYPE_CHECKING:
    from embershard.serving import Server


class MetricsPort:
    """``/metrics`` for Prometheus, ``/healthz`` for who asks whether to send requests, and ``/``, a
    page for people.

    ::

        with MetricsPort(port=9400) as metrics, Server("repository") as server:
            metrics.show(server)

    Every client that connects can read; none can change anything. What it holds and every wait is
    bounded, so that its clients cannot harm the server.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take the port; nobody can connect yet.

        Args:
            host: address to listen on. ``0.0.0.0`` lets other machines in.
            port: 0: a free one.

        Raises:
            ConfigError: no port has that number.
            UnavailableError: the address is not to be had.
        """
        if not 0 <= port <= 65535:
            raise ConfigError(f"metrics_port: expected 0..65535, got {port}")
        self._http = HttpServer("metrics", host=host, port=port)

    @property
    def url(self) -> str:
        """``http://host:port/``."""
        return self._http.url

    def show(self, server: Server, *, lines_dropped: Callable[[], int] = lambda: 0) -> None:
        """Answer from here on, in a thread of its own, until `close`.

        Args:
            server: what is shown.
            lines_dropped: by the log, since the start.

        Raises:
            UnavailableError: another process has taken the port meanwhile.
        """
        totals = Totals()

        def metrics() -> Metrics:
            return Metrics([*server.metrics(), log_lines_dropped(lines_dropped())])

        def sums() -> Metrics:
            return totals.add(server.metrics())

        history = History(sums)
        text = exposition(metrics)

        def scrape(_: str) -> Response:
            return Response(content_type=CONTENT_TYPE, body=text())

        def health(_: str) -> Response:
            state = server.state
            status = 200 if state == "serving" else 503
            return Response(status=status, body=f"{state}\n".encode())

        def status(after: int) -> dict[str, Any]:
            return status_json(sums(), server.packages, server.state, history, after=after)

        routes = {**page_routes(status), "/metrics": scrape, "/healthz": health}
        self._http.start(routes, tick=history.take)

    def close(self) -> None:
        """Close the port. Safe to repeat."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

PLAIN: Final[dict[str, type[CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "untyped": UnknownMetricFamily,
}


def exposition(metrics: Callable[[], Metrics]) -> Callable[[], bytes]:
    """What writes the server's metrics, of one moment, and then those of the process."""
    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


class Collector:
    """Of the metrics of a server, for a registry of prometheus-client."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for _, metrics in groupby(self._metrics(), key=lambda each: each.name):
            yield _family(list(metrics))


def _family(metrics: list[Metric]) -> Family:
    """Metrics of one name."""
    first = metrics[0]
    named, labels = (first.name, first.help), list(first.labels)
    if first.kind == "info":
        infos = InfoMetricFamily(*named, labels=labels)
        for each in metrics:
            infos.add_metric(list(each.labels.values()), {})
        return infos
    if first.kind == "histogram":
        histograms = HistogramMetricFamily(*named, labels=labels)
        for each in metrics:
            assert isinstance(each.value, Histogram)
            bounds = [*map(str, each.value.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(each.value.counts), strict=True))
            histograms.add_metric(list(each.labels.values()), buckets, each.value.sum)
        return histograms
    family = PLAIN[first.kind](*named, labels=labels)
    for each in metrics:
        assert not isinstance(each.value, Histogram)
        family.add_metric(list(each.labels.values()), each.value)
    return family
