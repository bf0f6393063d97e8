"""The text that a scrape gets, written by prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, groupby
from typing import Final

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

from embershard.serving.metric import Histogram, Metric, Metrics

__all__ = ["CONTENT_TYPE", "Collector", "exposition"]

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
