"""Counts of a server, from its metrics."""

from collections import Counter

REQUESTS = ("embershard_requests", "embershard_unserved_requests")


def requests_by(server, *labels):
    """Requests that ended, by the values of these labels: `code`, `reason`, `priority`."""
    counted, metrics = Counter(), server.metrics()
    for name in REQUESTS:
        for item in metrics.find(name):
            counted[tuple(item.labels[label] for label in labels)] += int(item.value)
    return {outcome: count for outcome, count in counted.items() if count}


def queued(server):
    """Requests, examples, ids and bytes that wait."""
    metrics = server.metrics()
    kinds = ("requests", "examples", "ids", "bytes")
    return {kind: metrics.total(f"embershard_queued_{kind}") for kind in kinds}
