"""The metrics of a server at one moment: one flat list, made in C++."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from embershard.serving._native import load_extension


class Histogram(NamedTuple):
    """Observations, counted by the least bound that they do not exceed."""

    bounds: list[float]
    """Upper bounds, ascending."""
    counts: list[int]
    """One for each bound, not cumulative, and one for what exceeds them all."""
    sum: float

    @property
    def observations(self) -> int:
        """Of all observations."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that a share of the observations does not exceed, as PromQL's
        ``histogram_quantile`` finds it; None without observations.

        Observations lie evenly between the bounds around them, and from 0 on below the first. One
        beyond the last bound counts as the last bound.
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
        """With `factor` times the observations of another one of the same bounds."""
        counts = [a + factor * b for a, b in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, counts, self.sum + factor * other.sum)


EMPTY: Final = Histogram([0.0], [0, 0], 0.0)


class Metric(NamedTuple):
    """One value with its name and labels."""

    name: str
    """Without the endings that Prometheus adds: ``_total``, ``_info``, ``_bucket``, ..."""
    help: str
    kind: str
    """``counter``, ``gauge``, ``histogram``, ``info``, or ``untyped``: a counter whose name, one of
    Triton's, does not end in ``_total``."""
    labels: dict[str, str]
    """``model`` and ``version`` if a version counts it, and its own."""
    value: float | Histogram


class Metrics:
    """A list of metrics, those of one name together, and sums over it.

    Each sum is over the metrics of a name whose labels have the given values.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_name: dict[str, list[Metric]] = {}
        for each in metrics:
            self._by_name.setdefault(each.name, []).append(each)

    def __iter__(self) -> Iterator[Metric]:
        for metrics in self._by_name.values():
            yield from metrics

    def find(self, name: str, **labels: object) -> list[Metric]:
        """The metrics of the name, with these labels."""
        wanted = {label: str(value) for label, value in labels.items()}.items()
        return [each for each in self._by_name.get(name, ()) if wanted <= each.labels.items()]

    def total(self, name: str, **labels: object) -> float:
        """The sum of values; of a histogram, the number of observations."""
        return sum(
            each.value.observations if isinstance(each.value, Histogram) else each.value
            for each in self.find(name, **labels)
        )

    def largest(self, name: str) -> float:
        """The largest value of a gauge; 0 without one."""
        values = (each.value for each in self.find(name))
        return max((value for value in values if not isinstance(value, Histogram)), default=0.0)

    def by(self, name: str, label: str, **labels: object) -> dict[str, float]:
        """The sum for each value of a label."""
        sums: dict[str, float] = {}
        for each in self.find(name, **labels):
            assert not isinstance(each.value, Histogram)
            sums[each.labels[label]] = sums.get(each.labels[label], 0) + each.value
        return sums

    def histogram(self, name: str, **labels: object) -> Histogram:
        """All observations."""
        found = [each.value for each in self.find(name, **labels)]
        whole = EMPTY
        for each in found:
            assert isinstance(each, Histogram)
            whole = each if whole is EMPTY else whole.plus(each)
        return whole


def load_failures(count: int) -> Metric:
    """Counted in Python, as events of the loader arrive."""
    about = "Versions, or labels files, that could not be loaded."
    return Metric("embershard_load_failures", about, "counter", {}, count)


def log_lines_dropped(count: int) -> Metric:
    """Counted by the log of `embershard serve`."""
    about = "Lines that the log dropped: its reader was too slow, or took none."
    return Metric("embershard_log_lines_dropped", about, "counter", {}, count)


def from_native(rows: Iterable[tuple[Any, ...]]) -> Iterator[Metric]:
    """Metrics of the extension's tuples."""
    for name, about, kind, labels, value in rows:
        counted = Histogram(*value) if isinstance(value, tuple) else value
        yield Metric(name, about, kind, labels, counted)


def example_metrics() -> Metrics:
    """All names, kinds and labels: the metrics of a server with one version, input and device."""
    rows = load_extension().example_metrics()
    return Metrics([*from_native(rows), load_failures(0), log_lines_dropped(0)])
