"""A line in the log for each shadow version that compares next to nothing, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from embershard.serving.logs import EventLog
from embershard.serving.snapshot import Snapshot, VersionSnapshot

__all__ = ["ShadowLog", "ShadowWatch"]

INTERVAL_SECONDS: Final = 60.0
COMPARED_SHARE_MIN: Final = 0.1
"""Of the sampled requests; below it there is a line."""
SAMPLED_MIN: Final = 20
"""In an interval; fewer say nothing."""

Loaded: TypeAlias = tuple[str, int, float]
"""A model, a version, and when it was loaded."""
Fields: TypeAlias = dict[str, object]


class Snapshots(Protocol):
    """Where the counts come from: a `Server`."""

    def snapshot(self) -> Snapshot: ...


class ShadowWatch:
    """Which shadow versions compare next to nothing, by snapshots taken about a minute apart. For
    one thread.

    A version is named once, and again after an interval in which it compared enough.
    """

    def __init__(self, shadow_time: float) -> None:
        """
        Args:
            shadow_time: as in `ServerOptions`.
        """
        self._shadow_time = shadow_time
        self._last: dict[Loaded, VersionSnapshot] = {}
        self._taken_at = 0.0
        self._named: set[Loaded] = set()

    def look(self, snapshot: Snapshot, now: float) -> list[Fields]:
        """What to log of the time since the last call. The first call only takes the counts.

        Args:
            now: seconds of a clock that does not jump.
        """
        seconds, self._taken_at = now - self._taken_at, now
        before = self._last
        self._last = {
            (each["model"], each["version"], each["start_unix_seconds"]): each
            for each in snapshot["versions"]
        }
        found = []
        for loaded, version in self._last.items():
            if loaded not in before:
                continue
            fields = self._fields(before[loaded], version, seconds)
            if fields and loaded not in self._named:
                found.append(fields)
            (self._named.add if fields else self._named.discard)(loaded)
        return found

    def _fields(self, before: VersionSnapshot, after: VersionSnapshot, seconds: float) -> Fields:
        """Of a version that compared next to nothing; else none."""
        then, now = before["shadow"], after["shadow"]
        dropped = {name: count - then["dropped"][name] for name, count in now["dropped"].items()}
        sampled = now["sent"] - then["sent"] + sum(dropped.values())
        compared = _compared(after) - _compared(before)
        if sampled < SAMPLED_MIN or compared >= COMPARED_SHARE_MIN * sampled:
            return {}
        failed = now["failed"] - then["failed"]
        batch_seconds = now["batch_seconds"] - then["batch_seconds"]
        waited = batch_seconds - (now["cpu_seconds"] - then["cpu_seconds"])
        if dropped["schema"] > sampled / 2:
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
            "model": after["model"],
            "version": after["version"],
            "sampled": sampled,
            "compared": compared,
            "failed": failed,
            **{f"dropped_{name}": count for name, count in dropped.items()},
            "why": why,
        }


class ShadowLog:
    """A thread that writes ``shadow_compares_little`` lines, until `close`."""

    def __init__(
        self,
        server: Snapshots,
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
            for fields in self._watch.look(self._server.snapshot(), self._monotonic()):
                self._log.write("shadow_compares_little", fields)
            if self._closed.wait(self._interval_seconds):
                return


def _compared(version: VersionSnapshot) -> int:
    return sum(version["histograms"]["shadow_difference"]["counts"])
