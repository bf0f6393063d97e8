"""Metrics of a server and of a watch, as Prometheus scrapes them."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from embershard.commands.fetch import watch_routes
from embershard.fetch.watch_status import WatchStatus
from embershard.serving import Server, ServerOptions
from embershard.serving.metrics import MetricsPort
from tests.repository.sources import ROOT


@pytest.fixture(scope="session")
def samples() -> list[Sample]:
    """Samples of all metrics of a live server, and of a watch that follows a label."""
    status = WatchStatus(interval_seconds=30)
    status.want({"stable": 1}, "small")
    status.serve([])
    watch = watch_routes(status, 60)["/metrics"]("").body.decode()
    repository = ROOT / "tests" / "golden" / "format_0"
    with (
        MetricsPort(port=0) as metrics,
        Server(repository, options=ServerOptions(port=0, threads=1)) as server,
    ):
        metrics.show(server)
        with urllib.request.urlopen(f"{metrics.url}metrics", timeout=60) as answer:
            server = answer.read().decode()
    return [
        sample
        for text in (server, watch)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


@pytest.fixture(scope="session")
def scraped(samples) -> dict[str, set[str]]:
    """The labels of every series, by the name of the series."""
    results: dict[str, set[str]] = {}
    for sample in samples:
        results.setdefault(sample.name, set()).update(sample.labels)
    return results


@pytest.fixture(scope="session")
def scraped_values(samples) -> dict[tuple[str, str], set[str]]:
    """The values of every label, by the names of series and label."""
    results: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        for label, value in sample.labels.items():
            results.setdefault((sample.name, label), set()).add(value)
    return results
