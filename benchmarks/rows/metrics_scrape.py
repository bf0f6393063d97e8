"""What a scrape costs the server: its own metrics port beside prometheus-client's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, start_wsgi_server

from benchmarks.harness import About, Row, Side, Work, compare
from benchmarks.packages import package_of
from embershard.data import workload
from embershard.serving import Server, ServerOptions
from embershard.serving.metrics import MetricsPort
from embershard.serving.metrics.families import FAMILIES

__all__ = ["measure"]

# A process of its own scrapes, so that its time is not the server's.
SCRAPER = """
import sys, time, urllib.request
end, done = time.perf_counter() + float(sys.argv[2]), 0
while time.perf_counter() < end:
    with urllib.request.urlopen(sys.argv[1]) as answer:
        answer.read()
    done += 1
print(done)
"""


def measure() -> list[Row]:
    """Scrapes that one second of the server's CPU time pays for."""
    package = package_of(workload("small"))
    options = ServerOptions(port=0, threads=1)
    with (
        MetricsPort() as metrics,
        Server(package.parent.parent, model=package.parent.name, options=options) as server,
    ):
        metrics.show(server)
        registry = CollectorRegistry()
        registry.register(_Families(server))
        ProcessCollector(registry=registry)
        theirs, thread = start_wsgi_server(0, "127.0.0.1", registry)
        row = compare(
            About(
                name="metrics_scrape/cpu",
                what="*small*, 26 sparse inputs, no traffic, one scrape after the other",
                unit="scrapes/CPU-s",
                note="both from one snapshot and process figures, over HTTP, not compressed",
            ),
            ours=_side("metrics port", f"{metrics.url}metrics"),
            theirs=_side("prometheus-client", f"http://127.0.0.1:{theirs.server_port}/metrics"),
        )
        theirs.shutdown()
        thread.join()
        theirs.server_close()
    return [row]


class _Families:
    """The metrics port's families, for prometheus-client to write each time."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        snapshot = self._server.snapshot()
        return (family.metric(snapshot) for family in FAMILIES)


def _side(name: str, url: str) -> Side:
    def block(seconds: float) -> Work:
        before = time.process_time()
        done = subprocess.run(
            [sys.executable, "-c", SCRAPER, url, str(seconds)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return Work(float(done.stdout), time.process_time() - before)

    return Side(name=name, block=block)
