"""The dashboard asks for what a server exports, by names and labels of a real scrape."""

import json
import re

import pytest

from tests.cases import cases
from tests.docker.files import DOCKER
from tests.docker.promql import unknown
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
    """As Grafana sends it: with values for its variables."""
    for item in DASHBOARD["templating"]["list"]:
        expression = expression.replace(f"${item['name']}", ".*")
    return expression.replace("$__rate_interval", "1m")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_panel_asks_for_what_there_is(scraped, target):
    assert unknown(filled(target["expr"]), scraped, PROMETHEUS) == []


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_legend_names_labels_that_the_query_leaves(target):
    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        grouped = re.search(r"by \(([^)]*)\)", target["expr"])
        if grouped:
            assert label in grouped[1].replace(" ", "").split(",")
        else:
            assert label in PROMETHEUS


def test_variables_take_their_values_from_what_there_is(scraped):
    results = [item for item in DASHBOARD["templating"]["list"] if item["type"] == "query"]
    assert [item["name"] for item in results] == ["model", "instance"]
    for request in results:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", request["query"]["query"])
        assert match
        assert match[2] in scraped[match[1]] | PROMETHEUS


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_of_the_metrics_page_ask_for_what_there_is(scraped, query):
    assert unknown(query.strip(), scraped, PROMETHEUS) == []


@cases(
    ("query", "expected"),
    {
        "name": ("embershard_requests", ["embershard_requests: no such series"]),
        "matcher": (
            'rate(embershard_requests_total{status="OK"}[1m])',
            ["embershard_requests_total: no label status"],
        ),
        "grouping": (
            "sum by (feature) (embershard_queued_requests)",
            ["by feature: no such label"],
        ),
        "matching": (
            "embershard_batches_total / on (device) embershard_examples_total",
            ["on device: no such label"],
        ),
    },
)
def test_what_there_is_not_is_noticed(scraped, query, expected):
    assert unknown(query, scraped, PROMETHEUS) == expected


def test_what_is_no_query_is_noticed(scraped):
    with pytest.raises(ValueError):
        unknown("sum(rate(embershard_batches_total[1m])", scraped, PROMETHEUS)
