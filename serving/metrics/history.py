"""The last ten minutes, second by second, so that a page opened late shows what was."""

from __future__ import annotations

import errno
import resource
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from embershard.serving.metrics.quantiles import quantile
from embershard.serving.snapshot import Histogram, Snapshot

__all__ = ["SAMPLES_MAX", "History", "Sample", "between", "resident_bytes"]

SAMPLES_MAX: Final = 600

Sample: TypeAlias = dict[str, float | None]
"""Figures of one second by name; None: nothing was observed."""

# Reasons by what a caller can do: nothing (it is answered), try later, wait longer, send something
# else. Any other: tell us.
OUTCOMES = {
    "": "answered",
    "queue_full": "overloaded",
    "no_time": "overloaded",
    "expired": "overloaded",
    "shutting_down": "overloaded",
    "abandoned": "abandoned",
    "malformed": "refused",
    "refused": "refused",
    "too_large": "refused",
    "not_found": "refused",
    "stale_schema": "refused",
}
MEANS = ("queue_seconds", "lookup_seconds", "dense_seconds", "batch_fill", "batch_examples")


def resident_bytes() -> float | None:
    """Memory of this process that lies in RAM, mapped tables included. None: not known, where
    connections take all the files that may be open."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return None
    return pages * resource.getpagesize()


class History:
    """What changed between snapshots taken about a second apart. For one thread."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.process_time,
        memory: Callable[[], float | None] = resident_bytes,
    ) -> None:
        self._snapshot, self._monotonic, self._wall = snapshot, monotonic, wall
        self._cpu, self._memory = cpu, memory
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._taken = 0
        self._last: tuple[float, float, Snapshot] | None = None

    @property
    def taken(self) -> int:
        """Samples so far, those forgotten included."""
        return self._taken

    def take(self) -> None:
        """Add a sample of what happened since the last call; the first call adds none."""
        now, cpu, snapshot = self._monotonic(), self._cpu(), self._snapshot()
        if self._last is not None:
            then, cpu_then, before = self._last
            if now <= then:
                return
            sample = between(before, snapshot, now - then)
            sample["cpu_cores"] = (cpu - cpu_then) / (now - then)
            sample["resident_bytes"] = self._memory()
            sample["unix_seconds"] = self._wall()
            self._samples.append(sample)
            self._taken += 1
        self._last = now, cpu, snapshot

    def after(self, number: int) -> list[Sample]:
        """The samples taken later than the first ``number``, oldest first, as far as kept."""
        newer = min(max(self._taken - number, 0), len(self._samples))
        return list(islice(self._samples, len(self._samples) - newer, None))


def between(before: Snapshot, after: Snapshot, seconds: float) -> Sample:
    """Rates, means and quantiles of what lies between two snapshots, and what waits at the later.

    Rates are per second. ``device:<name>`` is the share of the slots that were looking rows up on a
    device, ``dense_share`` of those that ran the dense program. A batch counts in the second in
    which it ends, so these are cut at 1. ``unknown_share`` is of the ids that passed the checks.
    """
    sample: Sample = dict.fromkeys([*OUTCOMES.values(), "failed"], 0.0)
    for old, new in zip(before["requests"], after["requests"], strict=True):
        name = OUTCOMES.get(new["reason"], "failed")
        sample[name] = (sample[name] or 0.0) + (new["count"] - old["count"]) / seconds
    sample["examples"] = (after["examples"] - before["examples"]) / seconds
    sample["received_bytes"] = (after["bytes_received"] - before["bytes_received"]) / seconds
    sample["sent_bytes"] = (after["bytes_sent"] - before["bytes_sent"]) / seconds

    new_of = {
        name: _difference(before["histograms"][name], histogram)
        for name, histogram in after["histograms"].items()
    }
    times = new_of["request_seconds"]
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        sample[name] = quantile(share, times["bounds"], times["counts"])
    for name in MEANS:
        count = sum(new_of[name]["counts"])
        sample[name] = new_of[name]["sum"] / count if count else None

    ids = new_of["request_ids"]["sum"]
    unknown = sum(after["unknown_ids"].values()) - sum(before["unknown_ids"].values())
    sample["unknown_share"] = unknown / ids if ids else None
    slot_seconds = seconds * max(after["slots"], 1)
    sample["dense_share"] = min(new_of["dense_seconds"]["sum"] / slot_seconds, 1.0)
    busy_before = {each["name"]: each["lookup_seconds"] for each in before["devices"]}
    for device in after["devices"]:
        busy = device["lookup_seconds"] - busy_before.get(device["name"], 0.0)
        sample[f"device:{device['name']}"] = min(busy / slot_seconds, 1.0)
    sample["queued_examples"] = after["queued"]["examples"]
    sample["in_flight"] = after["in_flight"]
    return sample


def _difference(before: Histogram, after: Histogram) -> Histogram:
    counts = [new - old for old, new in zip(before["counts"], after["counts"], strict=True)]
    return {
        "bounds": after["bounds"],
        "counts": counts,
        "sum": after["sum"] - before["sum"],
    }
