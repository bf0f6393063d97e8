"""Counts since the start of a server, while versions come and go."""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

from embershard.serving.metric import Histogram, Metric, Metrics

__all__ = ["Totals"]

COUNTED: Final = {"counter", "untyped", "histogram"}
LOADED: Final = "embershard_start_time_seconds"
Loaded: TypeAlias = dict[tuple[str | None, str | None], object]
"""Start time by model and version: a version may be loaded again."""


class Totals:
    """Adds what ended versions had counted when they were last seen, without model and version, so
    that no sum ever decreases. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = Metrics([])
        self._ended: dict[tuple[object, ...], Metric] = {}

    def add(self, metrics: Metrics) -> Metrics:
        """The metrics of a server, and those of ended versions.

        Args:
            metrics: taken no earlier than those of the last call.
        """
        with self._lock:
            before, now = _loaded(self._last), _loaded(metrics)
            ended = {key for key, start in before.items() if now.get(key) != start}
            for metric in self._last if ended else ():
                if metric.kind in COUNTED and _version(metric) in ended:
                    self._end(metric)
            self._last = metrics
            return Metrics([*metrics, *self._ended.values()])

    def _end(self, metric: Metric) -> None:
        labels = {k: v for k, v in metric.labels.items() if k not in ("model", "version")}
        key = (metric.name, *labels.items())
        value = metric.value
        if key in self._ended:
            known = self._ended[key].value
            if isinstance(value, Histogram):
                assert isinstance(known, Histogram)
                value = value.plus(known)
            else:
                assert not isinstance(known, Histogram)
                value += known
        self._ended[key] = metric._replace(labels=labels, value=value)


def _version(metric: Metric) -> tuple[str | None, str | None]:
    return metric.labels.get("model"), metric.labels.get("version")


def _loaded(metrics: Metrics) -> Loaded:
    return {_version(each): each.value for each in metrics.find(LOADED)}
