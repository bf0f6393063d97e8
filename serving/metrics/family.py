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

from embershard.serving.snapshot import Histogram, Snapshot, VersionSnapshot

__all__ = ["SERVED", "Family", "Rows"]

Rows: TypeAlias = Sequence[tuple[tuple[str, ...], float | Histogram]]
"""Values of the labels beyond `SERVED`, and what was counted there."""

SERVED = ("model", "version")
"""Labels of what is counted for each version."""

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
    """Beyond `SERVED`, where it is of versions."""
    rows: Callable[[VersionSnapshot], Rows] | None = None
    """Of each version. None: of the server."""
    server_rows: Callable[[Snapshot], Rows] | None = None
    """Of the server, where `rows` is None."""

    def metric(self, snapshot: Snapshot) -> Metric:
        """The family with its values, as prometheus-client has it."""
        labels = self.labels if self.rows is None else (*SERVED, *self.labels)
        counted = self._labelled(snapshot)
        if self.kind == "info":
            infos = InfoMetricFamily(self.name, self.about, labels=labels)
            for values, _ in counted:
                infos.add_metric(values, {})
            return infos
        if self.kind == "histogram":
            histograms = HistogramMetricFamily(self.name, self.about, labels=labels)
            for values, value in counted:
                assert isinstance(value, dict)
                bounds = [*map(str, value["bounds"]), "+Inf"]
                buckets = list(zip(bounds, accumulate(value["counts"]), strict=True))
                histograms.add_metric(values, buckets, value["sum"])
            return histograms
        family: _Plain = PLAIN[self.kind](self.name, self.about, labels=labels)
        for values, value in counted:
            assert not isinstance(value, dict)
            family.add_metric(values, value)
        return family

    def values(self, snapshot: Snapshot) -> list[float]:
        """The values of `metric`, in its order, at a small part of its cost."""
        found: list[float] = []
        for rows in self._each(snapshot):
            for _, value in rows:
                if isinstance(value, dict):
                    found += accumulate(value["counts"])
                    found += (found[-1], value["sum"])
                else:
                    found.append(value)
        return found

    def _each(self, snapshot: Snapshot) -> list[Rows]:
        """Of each version, or of the server."""
        if self.rows is not None:
            return [self.rows(version) for version in snapshot["versions"]]
        assert self.server_rows is not None
        return [self.server_rows(snapshot)]

    def _labelled(self, snapshot: Snapshot) -> list[tuple[tuple[str, ...], float | Histogram]]:
        """Values of all labels, and what was counted there."""
        served: list[tuple[str, ...]] = [()]
        if self.rows is not None:
            served = [(each["model"], str(each["version"])) for each in snapshot["versions"]]
        return [
            ((*of, *values), value)
            for of, rows in zip(served, self._each(snapshot), strict=True)
            for values, value in rows
        ]
