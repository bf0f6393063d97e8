"""Wanted and served versions and the outcome of polls, for metrics and probes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

FAILED_EVENTS: Final = ("fetch_failed", "refresh_failed", "index_failed", "remove_failed")

Versions = dict[tuple[str, str], int]
"""By model and label; the label is empty where the highest version is followed. 0: none."""


class WatchStatus:
    """Written by the thread that polls, read by any."""

    def __init__(
        self,
        *,
        interval_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._interval_seconds, self._monotonic, self._wall = interval_seconds, monotonic, wall
        self._start = self._beat = monotonic()
        self._success: float | None = None
        self._success_unix_seconds = 0.0
        self._is_failing = self._has_failed = False  # This poll, and the last that ended.
        self._failures = dict.fromkeys(FAILED_EVENTS, 0)
        self._wanted: Versions = {}
        self._served: Versions | None = None

    def begin_poll(self) -> None:
        self._is_failing = False
        self.beat()

    def end_poll(self) -> None:
        self.beat()
        self._has_failed = self._is_failing
        if not self._has_failed:
            self._success, self._success_unix_seconds = self._beat, self._wall()

    def beat(self, *_: int) -> None:
        """Records a sign of life. Takes and ignores the arguments of `FetchProgress`."""
        self._beat = self._monotonic()

    def fail(self, event: str) -> None:
        """A part of this poll has failed."""
        self._is_failing = True
        self._failures[event] += 1

    def keep(self, models: Collection[str]) -> None:
        """``models``: those that the remote has. Versions of others are not wanted any more."""
        self._wanted = {key: version for key, version in self._wanted.items() if key[0] in models}

    def want(self, versions: Mapping[str, int], model: str) -> None:
        """``versions``: by label, those of the remote."""
        others = {key: version for key, version in self._wanted.items() if key[0] != model}
        wanted = {(model, label): version for label, version in versions.items()}
        self._wanted = {**others, **wanted}

    def serve(self, index: Iterable[Mapping[str, Any]] | None) -> None:
        """``index``: of the server. None: it does not answer."""
        served: Versions = {}
        for entry in index or ():
            if entry["state"] == "ready":
                labels = [*entry["labels"], *([""] if entry["is_default"] else [])]
                served.update({(entry["model"], label): entry["version"] for label in labels})
        self._served = served

    def problems(self) -> list[str]:
        """Problems, one line for each."""
        lines = []
        age = self._monotonic() - (self._start if self._success is None else self._success)
        if age > 10 * self._interval_seconds:
            lines.append(f"no poll has succeeded for {age:.0f} s")
        if self._has_failed:
            lines.append("the last poll failed in part: the log says why")
        for (model, label), wanted, served in self._compared():
            if served is not None and served != wanted:
                lines.append(f"{model} {label or 'default'}: wanted {wanted}, serving {served}")
        return lines

    def idle_seconds(self) -> float:
        """Since a poll last began, ended, or got a block of a file."""
        return self._monotonic() - self._beat

    def rows(self) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
        """Metrics: name, help, kind, labels, value."""
        about = "When the last poll ended in which nothing failed, in seconds since 1970; 0: none."
        yield (
            "embershard_watch_success_time_seconds",
            about,
            "gauge",
            {},
            self._success_unix_seconds,
        )
        about = "Failures by the event that the log has."
        for event, count in self._failures.items():
            yield "embershard_watch_failures", about, "counter", {"event": event}, count
        compared = list(self._compared())
        about = "Version that the remote's label leads to; without labels the highest one."
        for (model, label), wanted, _ in compared:
            labels = {"model": model, "label": label}
            yield "embershard_watch_wanted_version", about, "gauge", labels, wanted
        about = "Version that the server serves for it; 0: none, or no answer."
        for (model, label), _, served in compared:
            labels = {"model": model, "label": label}
            if served is not None:
                yield "embershard_watch_served_version", about, "gauge", labels, served

    def _compared(self) -> Iterator[tuple[tuple[str, str], int, int | None]]:
        """Models and labels, the wanted version and the served one, None without a server."""
        served = self._served
        for key, wanted in self._wanted.items():
            yield key, wanted, None if served is None else served.get(key, 0)
