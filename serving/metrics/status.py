"""The status page: its files, and the figures that it asks for every second."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from embershard.serving.metrics.history import History
from embershard.serving.metrics.http_server import Handler, Response
from embershard.serving.metrics.quantiles import quantile
from embershard.serving.snapshot import Snapshot, VersionSnapshot

__all__ = ["page_routes", "status_json"]

PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/format.js": ("format.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


WHOLE: Final = {"histograms", "versions"}
"""Of a snapshot, what the page gets in another form."""


def page_routes(
    snapshot: Callable[[], Snapshot], state: Callable[[], str], history: History
) -> dict[str, Handler]:
    """The page and what it asks for, by path."""
    folder = files("embershard.serving.metrics") / "page"

    def file(name: str, content_type: str) -> Handler:
        response = Response(content_type=content_type, body=(folder / name).read_bytes())
        return lambda _: response

    def status(query: str) -> Response:
        after = parse_qs(query).get("after", ["0"])[-1]
        known = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else 0
        body = status_json(snapshot(), state(), history, after=known)
        return Response(content_type="application/json", body=json.dumps(body).encode())

    pages = {path: file(name, content_type) for path, (name, content_type) in PAGE.items()}
    return {**pages, "/status.json": status}


def status_json(
    snapshot: Snapshot, state: str, history: History, *, after: int = 0
) -> dict[str, Any]:
    """What the page shows: totals since the start, and the samples it does not know yet.

    Args:
        after: how many samples the page has seen; ``taken`` of the last answer.
    """
    times = snapshot["histograms"]["request_seconds"]
    samples = history.after(after)
    return {
        **{name: value for name, value in snapshot.items() if name not in WHOLE},
        "versions": [_version(version) for version in snapshot["versions"]],
        "state": state,
        "unix_seconds": time.time(),
        "quantiles": {
            name: quantile(share, times["bounds"], times["counts"])
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        },
        "taken": history.taken,
        "samples": {
            name: [_short(sample[name]) for sample in samples] for name in (samples or [{}])[0]
        },
    }


def _version(version: VersionSnapshot) -> dict[str, Any]:
    """A version's line in the table of versions."""
    times = version["histograms"]["request_seconds"]
    differences = version["histograms"]["shadow_difference"]
    compared = sum(differences["counts"])
    return {
        **{name: version[name] for name in ("model", "version", "labels", "is_default", "shadow")},
        "answered": sum(each["count"] for each in version["requests"] if each["code"] == "OK"),
        "p99": quantile(0.99, times["bounds"], times["counts"]),
        "shadow_sampled": version["shadow"]["sent"] + sum(version["shadow"]["dropped"].values()),
        "shadow_compared": compared,
        "shadow_difference": differences["sum"] / compared if compared else None,
    }


def _short(value: float | None) -> float | None:
    """To six digits, or a thousandth: a page draws them."""
    if value is None or abs(value) >= 1e5:
        return None if value is None else round(value, 3)
    return float(f"{value:.6g}")
