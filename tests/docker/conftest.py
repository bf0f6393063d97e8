"""A server's metrics, scraped as Prometheus does it."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from embershard.serving import Server, ServerOptions
from embershard.serving.metrics import MetricsPort
from tests.house.sources import ROOT


@pytest.fixture(scope="session")
def scraped() -> dict[str, set[str]]:
    """The labels of every series, by its name."""
    repository = ROOT / "tests" / "golden" / "format_0"
    with (
        MetricsPort(port=0) as metrics,
        Server(repository, options=ServerOptions(port=0, threads=1)) as server,
    ):
        metrics.show(server)
        with urllib.request.urlopen(f"{metrics.url}metrics", timeout=60) as answer:
            text = answer.read().decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found
