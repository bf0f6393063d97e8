"""The status page: its files, and the figures that it asks for every second."""

import json
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from embershard.serving.metric import Histogram, Metrics
from embershard.serving.metrics.history import REQUESTS, History
from embershard.serving.metrics.http_server import Handler, Response
from embershard.serving.repository import ServedPackage

PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/format.js": ("format.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

TOTALS: Final = {
    "examples": "embershard_examples",
    "batches": "embershard_batches",
    "bytes_received": "embershard_received_bytes",
    "bytes_sent": "embershard_sent_bytes",
    "slow_requests": "embershard_slow_requests",
    "connections_refused": "embershard_connections_refused",
}
DEVICES: Final = {
    "table_bytes": "table_bytes",
    "lookup_seconds": "device_lookup_seconds",
    "rows": "device_rows",
}
REQUEST_LABELS: Final = ("code", "reason", "priority")


def page_routes(status: Callable[[int], dict[str, Any]]) -> dict[str, Handler]:
    """The page and what it asks for, by path. ``status``: `status_json` after as many samples."""
    folder = files("embershard.serving.metrics") / "page"

    def file(name: str, content_type: str) -> Handler:
        response = Response(content_type=content_type, body=(folder / name).read_bytes())
        return lambda _: response

    def answer(query: str) -> Response:
        after = parse_qs(query).get("after", ["0"])[-1]
        known = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else 0
        body = json.dumps(status(known)).encode()
        return Response(content_type="application/json", body=body)

    pages = {path: file(name, content_type) for path, (name, content_type) in PAGE.items()}
    return {**pages, "/status.json": answer}


def status_json(
    metrics: Metrics,
    packages: Sequence[ServedPackage],
    state: str,
    history: History,
    *,
    after: int = 0,
) -> dict[str, Any]:
    """What the page shows: totals since the start, and the samples it does not know yet. ``after``:
    how many it has seen: ``taken`` of the last answer."""
    models = sorted({each.model for each in packages})
    default = next((each.version for each in packages if each.is_default), 0)
    times = metrics.histogram("embershard_request_seconds")
    samples = history.after(after)
    return {
        "model": models[0] if len(models) == 1 else f"{len(models)} models",
        "version": default if len(models) == 1 else 0,
        "state": state,
        "start_unix_seconds": history.start_unix_seconds,
        "unix_seconds": time.time(),
        "totals": {name: metrics.total(metric) for name, metric in TOTALS.items()},
        "requests": _requests(metrics),
        "unknown_ids": metrics.by("embershard_unknown_ids", "feature"),
        "devices": _devices(metrics),
        "versions": [_version(metrics, each) for each in packages],
        "quantiles": {
            name: times.quantile(share)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        },
        "taken": history.taken,
        "samples": {
            name: [_short(sample[name]) for sample in samples] for name in (samples or [{}])[0]
        },
    }


def _requests(metrics: Metrics) -> list[dict[str, object]]:
    """Requests that ended, by each combination of labels."""
    counts: dict[tuple[str, ...], float] = {}
    for name in REQUESTS:
        for each in metrics.find(name):
            assert not isinstance(each.value, Histogram)
            key = tuple(each.labels[label] for label in REQUEST_LABELS)
            counts[key] = counts.get(key, 0) + each.value
    return [
        {**dict(zip(REQUEST_LABELS, key, strict=True)), "count": count}
        for key, count in counts.items()
    ]


def _devices(metrics: Metrics) -> list[dict[str, object]]:
    columns = {
        column: metrics.by(f"embershard_{name}", "device") for column, name in DEVICES.items()
    }
    return [
        {"name": device, **{column: values.get(device, 0) for column, values in columns.items()}}
        for device in columns["rows"]
    ]


def _version(metrics: Metrics, package: ServedPackage) -> dict[str, Any]:
    """A version's line in the table of versions."""
    of = {"model": package.model, "version": package.version}
    differences = metrics.histogram("embershard_shadow_difference", **of)
    sampled = ("embershard_shadow_requests", "embershard_shadow_dropped")
    return {
        **of,
        "labels": package.labels,
        "is_default": package.is_default,
        "program": package.program.target,
        "program_why": package.program.why,
        "answered": metrics.total("embershard_requests", code="OK", **of),
        "p99": metrics.histogram("embershard_request_seconds", **of).quantile(0.99),
        "shadow_sampled": sum(metrics.total(name, **of) for name in sampled),
        "shadow_compared": differences.observations,
        "shadow_difference": differences.sum / differences.observations
        if differences.observations
        else None,
    }


def _short(value: float | None) -> float | None:
    """To six digits, or a thousandth: a page draws them."""
    if value is None or abs(value) >= 1e5:
        return None if value is None else round(value, 3)
    return float(f"{value:.6g}")
