"""Metrics of one name: where their values lie in a snapshot, and how Prometheus takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    UnknownMetricFamily,
)

from embershard.serving.snapshot import Histogram, Snapshot

__all__ = ["SERVED", "Family", "Rows"]

Rows: TypeAlias = Sequence[tuple[tuple[str, ...], float | Histogram]]
"""Values of the labels beyond `SERVED`, and what was counted there."""

SERVED = ("model", "version")
"""Labels that every family has."""

_Plain: TypeAlias = CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
PLAIN: dict[str, type[_Plain]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "untyped": UnknownMetricFamily,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is exposed under one name."""

    kind: Literal["counter", "gauge", "histogram", "info", "untyped"]
    """``untyped``: a counter under a name of another's choice. prometheus-client has the names of
    counters end in ``_total``; queries do not ask for the type."""
    name: str
    """Without the ends that its kind adds: ``_total``, ``_info``, ``_bucket``, ..."""
    about: str
    labels: tuple[str, ...] = ()
    """Beyond `SERVED`."""
    rows: Callable[[Snapshot], Rows]

    def metric(self, snapshot: Snapshot) -> Metric:
        """The family with its values, as prometheus-client has it."""
        labels = (*SERVED, *self.labels)
        served = (snapshot["model"], str(snapshot["version"]))
        if self.kind == "info":
            return InfoMetricFamily(self.name, self.about, dict(zip(labels, served, strict=True)))
        if self.kind == "histogram":
            histograms = HistogramMetricFamily(self.name, self.about, labels=labels)
            for values, counted in self.rows(snapshot):
                assert isinstance(counted, dict)
                bounds = [*map(str, counted["bounds"]), "+Inf"]
                buckets = list(zip(bounds, accumulate(counted["counts"]), strict=True))
                histograms.add_metric((*served, *values), buckets, counted["sum"])
            return histograms
        family: _Plain = PLAIN[self.kind](self.name, self.about, labels=labels)
        for values, value in self.rows(snapshot):
            assert not isinstance(value, dict)
            family.add_metric((*served, *values), value)
        return family

    def values(self, snapshot: Snapshot) -> list[float]:
        """The values of `metric`, in its order, at a small part of its cost."""
        found: list[float] = []
        for _, value in self.rows(snapshot):
            if isinstance(value, dict):
                found += accumulate(value["counts"])
                found += (found[-1], value["sum"])
            else:
                found.append(value)
        return found
