"""The queries of the dashboard use only series and labels of a real scrape."""

import json
import re

import pytest

from tests.docker.files import DOCKER
from tests.docker.promql import unknown_names
from tests.repository.sources import ROOT

DASHBOARD = json.loads((DOCKER / "grafana/dashboards/embershard.json").read_text())
PROMETHEUS = {"job", "instance"}  # Labels that Prometheus adds.
TARGETS = {
    f"{panel['title']}/{target['refId']}": target
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
QUERIES = re.findall(
    r"^```promql\n(.*?)^```", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE | re.DOTALL
)


def filled(expression: str) -> str:
    """A query with values for its variables, as Grafana sends it."""
    for item in DASHBOARD["templating"]["list"]:
        expression = expression.replace(f"${item['name']}", ".*")
    return expression.replace("$__rate_interval", "1m")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_panel_asks_for_what_there_is(scraped, target):
    assert unknown_names(filled(target["expr"]), scraped, PROMETHEUS) == []


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_of_the_metrics_page_ask_for_what_there_is(scraped, query):
    assert unknown_names(query.strip(), scraped, PROMETHEUS) == []
