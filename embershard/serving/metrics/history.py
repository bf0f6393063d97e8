"""Samples of the last ten minutes, one per second, so that a newly opened page shows them."""

import errno
import resource
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from embershard.serving.metric import Histogram, Metric, Metrics

SAMPLES_MAX: Final = 600

Sample: TypeAlias = dict[str, float | None]
"""Values of one second by name. None if nothing was observed."""

# Reasons are grouped by what a caller can do: nothing, since it is answered; try later; wait
# longer; or send another request. Any other reason is a failure of the server.
OUTCOMES = {
    "": "answered",
    "queue_full": "overloaded",
    "deadline_infeasible": "overloaded",
    "expired": "overloaded",
    "shutting_down": "overloaded",
    "abandoned": "abandoned",
    "malformed": "refused",
    "refused": "refused",
    "too_large": "refused",
    "not_found": "refused",
    "stale_schema": "refused",
}
MEANS = {
    "queue_seconds": "embershard_queue_seconds",
    "lookup_seconds": "embershard_lookup_seconds",
    "dense_seconds": "embershard_dense_seconds",
    "batch_fill": "embershard_batch_fill_ratio",
    "batch_examples": "embershard_batch_examples",
}
TIMES: Final = "embershard_request_seconds"
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
REQUESTS = ("embershard_requests", "embershard_unserved_requests")


def resident_bytes() -> float | None:
    """Includes mapped tables. None if no file descriptor is left to read it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return None
    return pages * resource.getpagesize()


class History:
    """Samples of the changes between metrics taken about a second apart. Not thread-safe."""

    def __init__(
        self,
        metrics: Callable[[], Metrics],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.process_time,
        memory: Callable[[], float | None] = resident_bytes,
    ) -> None:
        self._metrics, self._monotonic, self._wall = metrics, monotonic, wall
        self._cpu, self._memory = cpu, memory
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._taken = 0
        self.start_unix_seconds: Final = wall()
        self._last: tuple[float, float, Metrics] | None = None

    @property
    def taken(self) -> int:
        return self._taken

    def take(self) -> None:
        """Add the changes since the last call. The first call adds no sample."""
        now, cpu, metrics = self._monotonic(), self._cpu(), self._metrics()
        if self._last is not None:
            then, cpu_then, before = self._last
            if now <= then:
                return
            sample = between(before, metrics, now - then)
            sample["cpu_cores"] = (cpu - cpu_then) / (now - then)
            sample["resident_bytes"] = self._memory()
            sample["unix_seconds"] = self._wall()
            self._samples.append(sample)
            self._taken += 1
        self._last = now, cpu, metrics

    def after(self, number: int) -> list[Sample]:
        """The kept samples after the first ``number``, oldest first."""
        newer = min(max(self._taken - number, 0), len(self._samples))
        return list(islice(self._samples, len(self._samples) - newer, None))


def between(before: Metrics, after: Metrics, seconds: float) -> Sample:
    """Rates, means and quantiles between two metrics, and the length of the queue at the end.

    ===================================== ========================================================
    rates                                 per second
    ``device:<name>``                     share of the slots that were looking rows up on a device
    ``dense_share``                       share of the slots that ran the dense program
    ``unknown_share``                     unknown ids as a share of the ids that passed the checks
    ``p50:<model>``, ``p90:``, ``p99:``   quantiles of a model's latency
    ===================================== ========================================================

    A batch counts in the second in which it ends, so the shares of slots are limited to 1. Both
    metrics are from `Totals`, in which no count decreases.
    """

    def increase(name: str, **labels: object) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    sample: Sample = {
        "examples": increase("embershard_examples") / seconds,
        "received_bytes": increase("embershard_received_bytes") / seconds,
        "sent_bytes": increase("embershard_sent_bytes") / seconds,
        "queued_examples": after.total("embershard_queued_examples"),
        "in_flight": after.total("embershard_in_flight_requests"),
    }
    ended = dict.fromkeys([*OUTCOMES.values(), "failed"], 0.0)
    for name in REQUESTS:
        earlier = before.by(name, "reason")
        for reason, count in after.by(name, "reason").items():
            ended[OUTCOMES.get(reason, "failed")] += (count - earlier.get(reason, 0)) / seconds

    def observed(name: str, **labels: object) -> Histogram:
        earlier, later = before.histogram(name, **labels), after.histogram(name, **labels)
        return later.plus(earlier, -1) if earlier.observations else later

    for model in {row.labels["model"] for row in after.find(TIMES)}:
        times = observed(TIMES, model=model)
        for name, share in QUANTILES.items():
            sample[f"{name}:{model}"] = times.quantile(share)
    for name, metric in MEANS.items():
        values = observed(metric)
        sample[name] = values.sum / values.observations if values.observations else None
    ids = observed("embershard_request_ids").sum
    sample["unknown_share"] = increase("embershard_unknown_ids") / ids if ids else None

    slot_seconds = seconds * max(after.largest("embershard_slots"), 1.0)
    sample["dense_share"] = min(observed("embershard_dense_seconds").sum / slot_seconds, 1.0)
    busy = before.by("embershard_device_lookup_seconds", "device")
    for device, lookups in after.by("embershard_device_lookup_seconds", "device").items():
        share = (lookups - busy.get(device, 0.0)) / slot_seconds
        sample[f"device:{device}"] = min(share, 1.0)
    return {**sample, **ended}


COUNTED: Final = {"counter", "untyped", "histogram"}
LOADED: Final = "embershard_start_time_seconds"
Loaded: TypeAlias = dict[tuple[str | None, str | None], object]
"""Start time by model and version, which tells apart two loads of the same version."""


class Totals:
    """Adds the last counts of versions that have ended, so that no sum ever decreases. The added
    metrics have no label ``version``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = Metrics([])
        self._ended: dict[tuple[object, ...], Metric] = {}

    def add(self, metrics: Metrics) -> Metrics:
        """Add those of ended versions. ``metrics`` must not be older than at the last call."""
        with self._lock:
            before, now = _loaded(self._last), _loaded(metrics)
            ended = {key for key, start in before.items() if now.get(key) != start}
            for metric in self._last if ended else ():
                if metric.kind in COUNTED and _version(metric) in ended:
                    self._end(metric)
            self._last = metrics
            return Metrics([*metrics, *self._ended.values()])

    def _end(self, metric: Metric) -> None:
        labels = {k: v for k, v in metric.labels.items() if k != "version"}
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
    return {_version(metric): metric.value for metric in metrics.find(LOADED)}
