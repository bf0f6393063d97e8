"""The scrape and the alerts for the Prometheus operator: true to the manifests and to what a live
server exposes."""

import re

import promql_parser as promql
import pytest

from embershard.serving import ServerOptions
from tests.docker.files import DOCKER, documents
from tests.docker.promql import unknown

FOLDER = DOCKER / "kubernetes"
OBJECTS = {each["kind"]: each for each in documents(FOLDER / "monitoring.yaml")}
SERVICE = next(each for each in documents(FOLDER / "server.yaml") if each["kind"] == "Service")
(GROUP,) = OBJECTS["PrometheusRule"]["spec"]["groups"]
ALERTS = {rule["alert"]: rule for rule in GROUP["rules"]}
ADDED = {"job", "instance", "namespace", "pod"}  # Labels that the operator adds.
ALERT = pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)


def matchers(query):
    """Each series, label and operator of a query, with the values that are compared."""
    found = []

    def visit(node):
        if isinstance(node, promql.VectorSelector):
            found.extend((node.name, each.name, each.value) for each in node.matchers.matchers)

    promql.walk(promql.parse(query), visit)
    return found


def test_there_is_an_alert_for_each_way_to_fail():
    assert set(ALERTS) == {
        "EmbershardDown",
        "EmbershardServesNothing",
        "EmbershardModelWithdrawn",
        "EmbershardLoadFailed",
        "EmbershardErrors",
        "EmbershardQueueRefusals",
        "EmbershardLatencyNearDeadline",
        "EmbershardShadowDiffers",
        "EmbershardShadowComparesLittle",
        "EmbershardRestarts",
        "EmbershardCertificateExpires",
    }


@ALERT
def test_an_alert_asks_for_metrics_and_labels_of_a_live_server(scraped, rule):
    series = {**scraped, "up": set()}  # `up` is Prometheus's own.
    assert unknown(rule["expr"], series, ADDED) == []


@ALERT
def test_an_alert_compares_labels_with_values_that_there_are(scraped_values, rule):
    for name, label, value in matchers(rule["expr"]):
        if label == "job":
            assert value == SERVICE["metadata"]["name"]
        else:
            assert set(value.split("|")) <= scraped_values[name, label]


@ALERT
def test_an_alert_names_only_labels_that_its_query_leaves(rule):
    grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    left = set(re.split(", *", grouped[0])) - {"le"} if grouped else ADDED
    summary = rule["annotations"]["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= left
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_latency_alert_is_at_four_fifths_of_the_default_deadline():
    threshold = float(ALERTS["EmbershardLatencyNearDeadline"]["expr"].rpartition(">")[2])
    assert threshold == 0.8 * ServerOptions().default_timeout_ms / 1000


def test_what_is_scraped_is_the_services_port():
    spec = OBJECTS["ServiceMonitor"]["spec"]
    assert spec["selector"]["matchLabels"] == SERVICE["metadata"]["labels"]
    (endpoint,) = spec["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] in {port["name"] for port in SERVICE["spec"]["ports"]}


def test_objects_are_of_the_operators_first_version():
    assert set(OBJECTS) == {"ServiceMonitor", "PrometheusRule"}
    assert {each["apiVersion"] for each in OBJECTS.values()} == {"monitoring.coreos.com/v1"}


def test_an_alert_on_a_metric_that_is_gone_is_noticed(scraped):
    gone = "increase(embershard_loads_failed_total[15m]) > 0"
    assert unknown(gone, scraped, ADDED) == ["embershard_loads_failed_total: no such series"]
