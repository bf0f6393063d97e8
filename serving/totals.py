"""Sums over versions that come and go, none of which ever becomes less."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from embershard.serving.snapshot import (
    Device,
    Histogram,
    NativeSnapshot,
    Outcome,
    Queued,
    Snapshot,
    VersionSnapshot,
)

__all__ = ["Totals"]

Loaded: TypeAlias = tuple[str, int, float]
"""A model, a version, and when it was loaded: it may be again."""


class Totals:
    """Snapshots of a server from those of its versions.

    What a version had counted when it was last seen stays in the sums after it is let go. Any
    thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Loaded, VersionSnapshot] = {}
        self._ended: list[VersionSnapshot] = []  # At most one: their sum.
        self._load_failures = 0

    def count_load_failure(self) -> None:
        """A version, or the labels, could not be loaded."""
        with self._lock:
            self._load_failures += 1

    def snapshot(self, native: NativeSnapshot) -> Snapshot:
        """What the server has done since its start."""
        versions = native["versions"]
        with self._lock:
            seen = {
                (each["model"], each["version"], each["start_unix_seconds"]): each
                for each in versions
            }
            ended = [each for loaded, each in self._seen.items() if loaded not in seen]
            if ended:
                self._ended = [_idle(_sum([*self._ended, *ended]))]
            self._seen = seen
            known = [*self._ended, *versions]
            load_failures = self._load_failures
        return _whole(native, known, load_failures)


def _whole(
    native: NativeSnapshot, known: Sequence[VersionSnapshot], load_failures: int
) -> Snapshot:
    names = sorted({each["model"] for each in native["versions"]})
    defaults = [each["version"] for each in native["versions"] if each["is_default"]]
    total = _sum(known)
    return {
        **total,
        "model": names[0] if len(names) == 1 else f"{len(names)} models",
        "version": defaults[0] if len(names) == 1 and defaults else 0,
        "labels": [],
        "is_default": True,
        "start_unix_seconds": native["start_unix_seconds"],
        "requests": _outcomes([native["unserved"], total["requests"]]),
        "in_flight": total["in_flight"] + native["in_flight"],
        "bytes_received": total["bytes_received"] + native["bytes_received"],
        "versions": native["versions"],
        "unserved": native["unserved"],
        "open_streams": native["open_streams"],
        "connections_refused": native["connections_refused"],
        "slow": native["slow"],
        "refused_calls": native["refused_calls"],
        "load_failures": load_failures,
        "certificate_expires_unix_seconds": native["certificate_expires_unix_seconds"],
        "log_lines_dropped": 0,
    }


def _sum(versions: Sequence[VersionSnapshot]) -> VersionSnapshot:
    names = versions[0]["histograms"] if versions else {}
    return {
        "model": "",
        "version": 0,
        "labels": [],
        "is_default": False,
        "start_unix_seconds": 0.0,
        "requests": _outcomes(each["requests"] for each in versions),
        "histograms": {
            name: _histogram([each["histograms"][name] for each in versions]) for name in names
        },
        "examples": sum(each["examples"] for each in versions),
        "batches": sum(each["batches"] for each in versions),
        "reruns": sum(each["reruns"] for each in versions),
        "compute_seconds": sum(each["compute_seconds"] for each in versions),
        "unknown_ids": _counts(each["unknown_ids"] for each in versions),
        "bytes_received": sum(each["bytes_received"] for each in versions),
        "bytes_sent": sum(each["bytes_sent"] for each in versions),
        "queued": _queued([each["queued"] for each in versions]),
        "in_flight": sum(each["in_flight"] for each in versions),
        "devices": _devices(device for each in versions for device in each["devices"]),
        "shadow": {
            "sent": sum(each["shadow"]["sent"] for each in versions),
            "dropped": _counts(each["shadow"]["dropped"] for each in versions),
            "failed": sum(each["shadow"]["failed"] for each in versions),
            "batch_seconds": sum(each["shadow"]["batch_seconds"] for each in versions),
            "cpu_seconds": sum(each["shadow"]["cpu_seconds"] for each in versions),
        },
        "max_batch_examples": max((each["max_batch_examples"] for each in versions), default=0),
        "slots": max((each["slots"] for each in versions), default=0),
    }


def _idle(version: VersionSnapshot) -> VersionSnapshot:
    """Of one that has ended: it holds and awaits nothing."""
    devices: list[Device] = [{**device, "table_bytes": 0} for device in version["devices"]]
    return {
        **version,
        "queued": {"requests": 0, "examples": 0, "ids": 0, "bytes": 0},
        "in_flight": 0,
        "max_batch_examples": 0,
        "slots": 0,
        "devices": devices,
    }


def _outcomes(lists: Iterable[list[Outcome]]) -> list[Outcome]:
    return [
        {
            "code": same[0]["code"],
            "reason": same[0]["reason"],
            "priority": same[0]["priority"],
            "count": sum(each["count"] for each in same),
        }
        for same in zip(*lists, strict=True)
    ]


def _histogram(histograms: Sequence[Histogram]) -> Histogram:
    return {
        "bounds": histograms[0]["bounds"],
        "counts": [
            sum(counts) for counts in zip(*(each["counts"] for each in histograms), strict=True)
        ],
        "sum": sum(each["sum"] for each in histograms),
    }


def _counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def _queued(queued: Sequence[Queued]) -> Queued:
    return {
        "requests": sum(each["requests"] for each in queued),
        "examples": sum(each["examples"] for each in queued),
        "ids": sum(each["ids"] for each in queued),
        "bytes": sum(each["bytes"] for each in queued),
    }


def _devices(devices: Iterable[Device]) -> list[Device]:
    total: dict[str, Device] = {}
    for device in devices:
        before = total.get(device["name"])
        total[device["name"]] = (
            device
            if before is None
            else {
                "name": device["name"],
                "table_bytes": before["table_bytes"] + device["table_bytes"],
                "lookup_seconds": before["lookup_seconds"] + device["lookup_seconds"],
                "batches": before["batches"] + device["batches"],
                "rows": before["rows"] + device["rows"],
            }
        )
    return list(total.values())
