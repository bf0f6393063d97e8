"""The text that a scrape gets, byte for byte as prometheus-client writes it.

prometheus-client spends over a millisecond on names and labels, which never change while a server
runs. So it writes the text once, and a scrape puts new values between what stood around the old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.utils import floatToGoString

from embershard.serving.metrics.families import FAMILIES
from embershard.serving.snapshot import Snapshot

__all__ = ["CONTENT_TYPE", "Exposition"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Exposition:
    """Text for one server. For one thread."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._frame: list[str] = []
        self._labels: object = None
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def text(self) -> bytes:
        """The server's metrics, of one snapshot, then the process's."""
        snapshot = self._snapshot()
        labels = _labels(snapshot)
        if labels != self._labels:
            self._frame, self._labels = _frame(snapshot), labels
        values = chain.from_iterable(family.values(snapshot) for family in FAMILIES)
        texts = map(floatToGoString, values)
        lines = chain.from_iterable(zip(self._frame, texts, strict=False))
        return "".join(chain(lines, self._frame[-1:])).encode() + generate_latest(self._process)


class _Fixed:
    """A collector of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return (family.metric(self._snapshot) for family in FAMILIES)


def _frame(snapshot: Snapshot) -> list[str]:
    """What stands before each value, and after the last."""
    registry = CollectorRegistry()
    registry.register(_Fixed(snapshot))
    parts, text = [], ""
    for line in generate_latest(registry).decode().removesuffix("\n").split("\n"):
        if line.startswith("#"):
            text += f"{line}\n"
            continue
        named, _ = line.rsplit(" ", 1)
        parts.append(f"{text}{named} ")
        text = "\n"
    assert len(parts) == sum(len(family.values(snapshot)) for family in FAMILIES)
    return [*parts, text]


def _labels(snapshot: Snapshot) -> object:
    """What a snapshot's text depends on besides its values."""
    return [
        (
            version["model"],
            version["version"],
            [(each["code"], each["reason"], each["priority"]) for each in version["requests"]],
            [histogram["bounds"] for histogram in version["histograms"].values()],
            list(version["unknown_ids"]),
            [each["name"] for each in version["devices"]],
        )
        for version in snapshot["versions"]
    ]
