"""Wanted versions, served versions and the outcomes of polls, for metrics and probes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

FAILED_EVENTS: Final = ("fetch_failed", "refresh_failed", "index_failed", "remove_failed")

Versions = dict[tuple[str, str], int]
"""Versions by model and label, which is empty if the highest is followed. 0 means none."""


class WatchStatus:
    """The polling thread writes it, and any thread may read it."""

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
        self._is_failing = self._has_failed = False  # In this poll, and in the last ended one.
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
        """Record a sign of life. Its arguments are those of `FetchProgress`."""
        self._beat = self._monotonic()

    def fail(self, event: str) -> None:
        self._is_failing = True
        self._failures[event] += 1

    def keep(self, models: Collection[str]) -> None:
        """Forget the wanted versions of all models except ``models``, those of the remote."""
        self._wanted = {key: version for key, version in self._wanted.items() if key[0] in models}

    def want(self, versions: Mapping[str, int], model: str) -> None:
        """Record the wanted versions of a model by label, as the remote has them."""
        others = {key: version for key, version in self._wanted.items() if key[0] != model}
        wanted = {(model, label): version for label, version in versions.items()}
        self._wanted = {**others, **wanted}

    def serve(self, index: Iterable[Mapping[str, Any]] | None) -> None:
        """Record the served versions of the server's index. None if the server does not answer."""
        served: Versions = {}
        for entry in index or ():
            if entry["state"] == "ready":
                labels = [*entry["labels"], *([""] if entry["is_default"] else [])]
                served.update({(entry["model"], label): entry["version"] for label in labels})
        self._served = served

    def problems(self) -> list[str]:
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
        """Seconds since the last progress, which is the begin or end of a poll, a received block,
        or a verified or linked file."""
        return self._monotonic() - self._beat

    def rows(self) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
        """Metrics as (name, help, kind, labels, value)."""
        about = "End of the last poll without a failure, in seconds since 1970; 0: none."
        yield (
            "embershard_watch_success_time_seconds",
            about,
            "gauge",
            {},
            self._success_unix_seconds,
        )
        about = "Failures by event of the log."
        for event, count in self._failures.items():
            yield "embershard_watch_failures", about, "counter", {"event": event}, count
        compared = list(self._compared())
        about = "Version of the label on the remote, or the highest version without labels."
        for (model, label), wanted, _ in compared:
            labels = {"model": model, "label": label}
            yield "embershard_watch_wanted_version", about, "gauge", labels, wanted
        about = "Version that the server serves for the label; 0: none, or no answer."
        for (model, label), _, served in compared:
            labels = {"model": model, "label": label}
            if served is not None:
                yield "embershard_watch_served_version", about, "gauge", labels, served

    def _compared(self) -> Iterator[tuple[tuple[str, str], int, int | None]]:
        """Model and label, the wanted version, and the served one (None without a server)."""
        served = self._served
        for key, wanted in self._wanted.items():
            yield key, wanted, None if served is None else served.get(key, 0)
