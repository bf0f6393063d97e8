"""The metrics of a server at one moment, as a flat list that C++ makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from embershard.serving._native import load_extension


class Histogram(NamedTuple):
    """Counts of observations by the lowest bound that they do not exceed."""

    bounds: list[float]
    """Upper bounds, ascending."""
    counts: list[int]
    """One count per bound, not cumulative, and one for observations above all bounds."""
    sum: float

    @property
    def observations(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that a share of the observations does not exceed. None without observations.

        Computed like PromQL's ``histogram_quantile``: observations are spread evenly between two
        bounds, and between 0 and the first bound. Those above the last bound count as that bound.
        """
        rank = share * self.observations
        if not rank:
            return None
        below, lower = 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if below + count >= rank:
                return lower + (bound - lower) * (rank - below) / count
            below, lower = below + count, bound
        return self.bounds[-1]

    def plus(self, other: Histogram, factor: int = 1) -> Histogram:
        counts = [a + factor * b for a, b in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, counts, self.sum + factor * other.sum)


EMPTY: Final = Histogram([0.0], [0, 0], 0.0)


class Metric(NamedTuple):
    """One value with its name and labels."""

    name: str
    """Name without the suffixes that Prometheus adds: ``_total``, ``_info``, ``_bucket``, ..."""
    help: str
    kind: str
    """``counter``, ``gauge``, ``histogram``, ``info``, or ``untyped`` for counters with Triton's
    names, which do not end in ``_total``."""
    labels: dict[str, str]
    """Include ``model`` and ``version`` if the metric belongs to a version."""
    value: float | Histogram


class Metrics:
    """Metrics grouped by name. A sum is over those whose labels have the passed values."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_name: dict[str, list[Metric]] = {}
        for metric in metrics:
            self._by_name.setdefault(metric.name, []).append(metric)

    def __iter__(self) -> Iterator[Metric]:
        for metrics in self._by_name.values():
            yield from metrics

    def find(self, name: str, **labels: object) -> list[Metric]:
        wanted = {label: str(value) for label, value in labels.items()}.items()
        return [metric for metric in self._by_name.get(name, ()) if wanted <= metric.labels.items()]

    def total(self, name: str, **labels: object) -> float:
        """A histogram counts with its number of observations."""
        values = (metric.value for metric in self.find(name, **labels))
        return sum(
            value.observations if isinstance(value, Histogram) else value for value in values
        )

    def largest(self, name: str) -> float:
        """0 if the gauge has no value."""
        values = (metric.value for metric in self.find(name))
        return max((value for value in values if not isinstance(value, Histogram)), default=0.0)

    def by(self, name: str, label: str, **labels: object) -> dict[str, float]:
        sums: dict[str, float] = {}
        for metric in self.find(name, **labels):
            assert not isinstance(metric.value, Histogram)
            sums[metric.labels[label]] = sums.get(metric.labels[label], 0) + metric.value
        return sums

    def histogram(self, name: str, **labels: object) -> Histogram:
        total = EMPTY
        for metric in self.find(name, **labels):
            assert isinstance(metric.value, Histogram)
            total = metric.value if total is EMPTY else total.plus(metric.value)
        return total


def load_failures(count: int) -> Metric:
    """Python counts load failures from the loader's events."""
    about = "Versions, or labels files, that could not be loaded."
    return Metric("embershard_load_failures", about, "counter", {}, count)


def log_lines_dropped(count: int) -> Metric:
    """The log of `embershard serve` counts its dropped lines."""
    about = "Lines that the log dropped, because its reader was too slow or took none."
    return Metric("embershard_log_lines_dropped", about, "counter", {}, count)


def from_native(rows: Iterable[tuple[Any, ...]]) -> Iterator[Metric]:
    for name, about, kind, labels, value in rows:
        counted = Histogram(*value) if isinstance(value, tuple) else value
        yield Metric(name, about, kind, labels, counted)


def example_metrics() -> Metrics:
    """The metrics of a server with one version, input and device: all names, kinds and labels."""
    rows = load_extension().example_metrics()
    return Metrics([*from_native(rows), load_failures(0), log_lines_dropped(0)])
