"""The scrape and the alerts for the Prometheus operator agree with the manifests and with the
metrics of a live server."""

import re
import subprocess

import promql_parser as promql
import pytest
import yaml

from tests.cases import cases
from tests.docker.files import DOCKER, documents
from tests.docker.promql import unknown_names

FOLDER = DOCKER / "kubernetes"
OBJECTS = {document["kind"]: document for document in documents(FOLDER / "monitoring.yaml")}
SERVICE = next(
    document for document in documents(FOLDER / "server.yaml") if document["kind"] == "Service"
)
(GROUP,) = OBJECTS["PrometheusRule"]["spec"]["groups"]
ALERTS = {rule["alert"]: rule for rule in GROUP["rules"]}
JOBS = {SERVICE["metadata"]["name"], "embershard-watch"}
ADDED = {"job", "instance", "namespace", "pod"}  # Labels that the operator adds.
ALERT = pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)


def matchers(query):
    """Each series and label that a query compares, with the value."""
    results = []

    def visit(node):
        if isinstance(node, promql.VectorSelector):
            results.extend(
                (node.name, matcher.name, matcher.value) for matcher in node.matchers.matchers
            )

    promql.walk(promql.parse(query), visit)
    return results


@ALERT
def test_an_alert_asks_for_metrics_and_labels_of_a_live_server(scraped, rule):
    series = {**scraped, "up": set()}  # Prometheus itself adds `up`.
    assert unknown_names(rule["expr"], series, ADDED) == []


@ALERT
def test_an_alert_compares_labels_with_values_that_there_are(scraped_values, rule):
    for name, label, value in matchers(rule["expr"]):
        if label == "job":
            assert value in JOBS
        else:
            assert set(value.split("|")) <= scraped_values[name, label]


@ALERT
def test_an_alert_names_only_labels_that_its_query_leaves(rule):
    grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    labels = set(re.split(", *", grouped[0])) - {"le"} if grouped else ADDED
    if not grouped and "watch_failures" in rule["expr"]:
        labels = {*ADDED, "event"}
    summary = rule["annotations"]["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= labels
    assert rule["labels"]["severity"] in ("warning", "critical")


def up(job="embershard", **pods):
    """Series `up` of each pod, one value a minute. ``1x4 0x9``: five times 1, ten times 0."""
    return {f'up{{job="{job}",namespace="n",pod="{pod}"}}': values for pod, values in pods.items()}


def of_watch(**metrics):
    name = 'embershard_watch_{}{{job="embershard-watch",namespace="n",pod="a"}}'
    return {**up(a="1x60"), **{name.format(key): values for key, values in metrics.items()}}


WANTED = of_watch(wanted_version="1x4 2x60", served_version="1x60")
STALE = of_watch(success_time_seconds="0+60x4 240x60")


@pytest.mark.needs_promtool
@cases(
    ("series", "alert", "minute", "fires"),
    {
        "half-of-the-pods": (up(a="1x60", b="1x9 0x60"), "EmbershardDown", 12, True),
        "half-for-a-minute": (up(a="1x60", b="1x9 0x60"), "EmbershardDown", 11, False),
        "half-came-back": (up(a="1x60", b="1x9 0x0 1x60"), "EmbershardDown", 14, False),
        "one-of-three": (up(a="1x60", b="1x60", c="0x60"), "EmbershardDown", 60, False),
        "none-is-there": ({}, "EmbershardDown", 2, True),
        "watches-are-no-pods": (
            {**up(a="1x60"), **up("embershard-watch", a="0x60")},
            "EmbershardDown",
            60,
            False,
        ),
        "one-of-three-for-long": (
            up(a="1x60", b="1x60", c="0x60"),
            "EmbershardPodDown",
            20,
            True,
        ),
        "polls-fail": (STALE, "EmbershardWatchStalled", 40, True),
        "polls-failed-a-while": (STALE, "EmbershardWatchStalled", 39, False),
        "a-poll-of-half-an-hour": (
            of_watch(success_time_seconds="0x29 1800x30"),
            "EmbershardWatchStalled",
            29,
            False,
        ),
        "watch-ended": (up("embershard-watch", a="0x60"), "EmbershardWatchStalled", 5, True),
        "polls-succeed": (
            of_watch(success_time_seconds="0+60x60"),
            "EmbershardWatchStalled",
            60,
            False,
        ),
        "the-server-loads": (
            {**of_watch(success_time_seconds="0x60"), **up(a="0x60")},
            "EmbershardWatchStalled",
            60,
            False,
        ),
        "another-version": (WANTED, "EmbershardVersionNotServed", 20, True),
        "it-loads": (WANTED, "EmbershardVersionNotServed", 19, False),
        "no-server-is-asked": (
            of_watch(wanted_version="2x60"),
            "EmbershardVersionNotServed",
            60,
            False,
        ),
        "failures": (of_watch(failures_total="0+1x60"), "EmbershardWatchFails", 20, True),
        "a-few-failures": (of_watch(failures_total="0x9 4x60"), "EmbershardWatchFails", 20, False),
    },
)
def test_an_alert_fires_when_the_page_says(tmp_path, series, alert, minute, fires):
    (rule,) = [{**ALERTS[alert], "annotations": {}}]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "embershard", "rules": [rule]}]})
    )
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
