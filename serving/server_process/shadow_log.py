"""A line in the log for each shadow version that compares next to nothing, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from embershard.serving.metric import Metrics
from embershard.serving.server_process.logs import EventLog

__all__ = ["ShadowLog", "ShadowWatch"]

INTERVAL_SECONDS: Final = 60.0
COMPARED_SHARE_MIN: Final = 0.1
"""Of the sampled requests; below it there is a line."""
SAMPLED_MIN: Final = 20
"""In an interval; fewer say nothing."""

COUNTED: Final = {
    "sent": "embershard_shadow_requests",
    "compared": "embershard_shadow_compared",
    "failed": "embershard_shadow_failed",
    "batch_seconds": "embershard_shadow_batch_seconds",
    "cpu_seconds": "embershard_shadow_cpu_seconds",
}
Loaded: TypeAlias = tuple[str, str, float]
"""A model, a version, and when it was loaded."""
Counts: TypeAlias = dict[str, float]
"""Of a version: by the names of the fields below."""
Fields: TypeAlias = dict[str, object]


class Counting(Protocol):
    """A `Server`."""

    def metrics(self) -> Metrics: ...


class ShadowWatch:
    """Which shadow versions compare next to nothing, by metrics taken about a minute apart. For
    one thread.

    A version is named once, and again after an interval in which it compared enough.
    """

    def __init__(self, shadow_time: float) -> None:
        """
        Args:
            shadow_time: as in `ServerOptions`.
        """
        self._shadow_time = shadow_time
        self._last: dict[Loaded, Counts] = {}
        self._taken_at = 0.0
        self._named: set[Loaded] = set()

    def look(self, metrics: Metrics, now: float) -> list[Fields]:
        """What to log of the time since the last call. The first call only takes the counts.

        Args:
            now: seconds of a clock that does not jump.
        """
        seconds, self._taken_at = now - self._taken_at, now
        before, self._last = self._last, _counts(metrics)
        found = []
        for loaded, counts in self._last.items():
            if loaded not in before:
                continue
            since = {name: count - before[loaded][name] for name, count in counts.items()}
            fields = self._fields(loaded, since, seconds)
            if fields and loaded not in self._named:
                found.append(fields)
            (self._named.add if fields else self._named.discard)(loaded)
        return found

    def _fields(self, loaded: Loaded, counted: Counts, seconds: float) -> Fields:
        """Of a version that compared next to nothing; else none."""
        dropped = {name: int(counted[name]) for name in counted if name.startswith("dropped_")}
        sampled = int(counted["sent"]) + sum(dropped.values())
        compared, failed = int(counted["compared"]), int(counted["failed"])
        if sampled < SAMPLED_MIN or compared >= COMPARED_SHARE_MIN * sampled:
            return {}
        batch_seconds = counted["batch_seconds"]
        waited = batch_seconds - counted["cpu_seconds"]
        if dropped["dropped_schema"] > sampled / 2:
            why = "its inputs or outputs are not those of the version that answers"
        elif failed > sampled / 2:
            why = "its program failed, or it was no shadow any more"
        elif not batch_seconds:
            why = (
                "no batch of copies ended: other threads left it no processor, or it rests "
                "(--shadow-time) after a batch that had to wait for one"
            )
        elif waited > batch_seconds / 2:
            why = (
                f"its batches waited {waited:.1f} of their {batch_seconds:.1f} s for a processor "
                "that other threads left"
            )
        else:
            why = (
                f"--shadow-time {self._shadow_time:.3g}: its batches took {batch_seconds:.2f} of "
                f"{seconds:.0f} s, and it rests between them"
            )
        return {
            "model": loaded[0],
            "version": int(loaded[1]),
            "sampled": sampled,
            "compared": compared,
            "failed": failed,
            **dropped,
            "why": why,
        }


class ShadowLog:
    """A thread that writes ``shadow_compares_little`` lines, until `close`."""

    def __init__(
        self,
        server: Counting,
        log: EventLog,
        *,
        shadow_time: float,
        interval_seconds: float = INTERVAL_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._log, self._monotonic = server, log, monotonic
        self._interval_seconds = interval_seconds
        self._watch = ShadowWatch(shadow_time)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embershard-shadow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. Safe to repeat."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for fields in self._watch.look(self._server.metrics(), self._monotonic()):
                self._log.write("shadow_compares_little", fields)
            if self._closed.wait(self._interval_seconds):
                return


def _counts(metrics: Metrics) -> dict[Loaded, Counts]:
    counts = {}
    for each in metrics.find("embershard_start_time_seconds"):
        assert isinstance(each.value, float)
        of = {"model": each.labels["model"], "version": each.labels["version"]}
        dropped = metrics.by("embershard_shadow_dropped", "reason", **of)
        counts[of["model"], of["version"], each.value] = {
            **{name: metrics.total(metric, **of) for name, metric in COUNTED.items()},
            **{f"dropped_{reason}": count for reason, count in dropped.items()},
        }
    return counts
