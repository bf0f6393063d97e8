"""The files of the status page, and the figures that it requests."""

import json
import re
import urllib.request

import pytest

from embershard.errors import ConfigError
from embershard.serving.metric import Metrics
from embershard.serving.metrics import MetricsPort
from embershard.serving.metrics.history import History
from embershard.serving.metrics.port import PAGE, page_routes, status_json
from tests.serving.metrics.figures import BUSY, FakeServer, busy, empty, of_version, served

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.fixture
def server():
    return FakeServer(busy())


@pytest.fixture
def history(server):
    """History of three seconds: a busy one between two idle ones."""
    seconds, clock = iter(range(4)), iter(range(999, 1003))
    kept = History(
        server.metrics, monotonic=lambda: float(next(seconds)), wall=lambda: float(next(clock))
    )
    for now in (empty(), empty(), busy(), busy()):
        server.now = now
        kept.take()
    return kept


@pytest.fixture
def routes(server, history):
    return page_routes(
        lambda after: status_json(server.now, server.packages, server.state, history, after=after)
    )


def test_the_page_loads_only_what_is_served_beside_it(routes):
    for path, (name, _) in PAGE.items():
        answer = routes[path]("")
        assert answer.content_type.startswith(KINDS[name.rpartition(".")[2]])
        text = answer.body.decode()
        for link in re.findall(r'(?:src|href)="([^"]*)"|from "([^"]*)"', text):
            target = next(filter(None, link)).removeprefix("./")
            assert f"/{target}" in {*routes, "/metrics"}
        assert set(re.findall(r"https?://[^\"\s]*", text)) <= {"http://www.w3.org/2000/svg"}
        assert "style=" not in text  # The policy would refuse it.


def shown(history, *packages):
    return status_json(busy(), packages or [served()], "draining", history)


def test_totals_are_those_of_the_metrics(history):
    status = shown(history, served("ranker", 3, "stable"))
    assert (status["model"], status["version"], status["state"]) == ("ranker", 3, "draining")
    assert status["totals"] == {
        "examples": 91,
        "batches": 11,
        "bytes_received": 123_456,
        "bytes_sent": 65_432,
        "slow_requests": 19,
        "connections_refused": 44,
    }
    assert status["unknown_ids"] == {"user": 17, "item": 26}
    assert status["devices"] == [
        {"name": "cpu:0", "table_bytes": 640, "lookup_seconds": 0.25, "rows": 701},
        {"name": "cpu:1", "table_bytes": 320, "lookup_seconds": 0.125, "rows": 702},
    ]
    requests = {
        (request["reason"], request["priority"]): request["count"] for request in status["requests"]
    }
    assert len(requests) == 30
    assert requests["", "interactive"] == 40
    assert requests["abandoned", "background"] == 17
    assert status["quantiles"] == pytest.approx(
        {"p50": 0.0015, "p90": 0.002 + 0.003 * 6 / 7, "p99": 0.01}
    )
    assert status["start_unix_seconds"] == 999


def test_a_version_has_a_line(history):
    (line,) = shown(history, served("ranker", 3, "stable"))["versions"]
    assert line == {
        "model": "ranker",
        "version": 3,
        "labels": ("stable",),
        "is_default": True,
        "program": "cpu",
        "program_why": "no other fits",
        "answered": 66,
        "p99": 0.01,
        "shadow_sampled": 51 + 52 + 54 + 55,
        "shadow_compared": 11,
        "shadow_difference": 0.0078125 / 11,
    }


def test_several_models_count_and_only_defaults_have_a_version(history):
    several = shown(history, served(), served("finder", 2))
    assert (several["model"], several["version"]) == ("2 models", 0)
    without = shown(history, served(is_default=False))
    assert (without["model"], without["version"]) == ("ranker", 0)


def test_samples_come_as_columns(history):
    status = shown(history)
    assert status["taken"] == 3
    assert status["samples"]["answered"] == [0, 66, 0]
    assert status["samples"]["p50:ranker"] == [None, 0.0015, None]
    assert {len(column) for column in status["samples"].values()} == {3}
    assert status["samples"]["unix_seconds"] == [1000, 1001, 1002]


def test_samples_of_before_a_model_was_there_have_gaps(server, history):
    server.now = Metrics([*busy(), *of_version({}, model="finder")])
    seconds = iter([4.0, 5.0])
    history._monotonic = lambda: next(seconds)
    history._wall = lambda: 1004.0
    history.take()
    server.now = Metrics([*busy(), *of_version(BUSY, model="finder")])
    history.take()
    status = status_json(server.now, [served(), served("finder", 2)], "serving", history)
    assert status["models"] == ["finder", "ranker"]
    assert status["samples"]["p50:finder"] == [None, None, None, None, 0.0015]
    assert {len(column) for column in status["samples"].values()} == {5}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("after=0", 3),
        ("after=2", 1),
        ("after=3", 0),
        ("after=99", 0),
        ("after=-1", 3),
        ("after=x", 3),
        ("after=" + "9" * 5000, 3),
        ("%00&after=²", 3),
    ],
    ids=lambda value: str(value)[:12],
)
def test_only_newer_samples_are_sent(routes, query, count):
    status = json.loads(routes["/status.json"](query).body)
    assert len(status["samples"].get("answered", [])) == count


def test_a_port_serves_page_figures_and_metrics(server):
    with MetricsPort() as metrics:
        metrics.show(server)
        for path, words in (("", b"<!doctype html>"), ("status.json", b'"ranker"')):
            with urllib.request.urlopen(metrics.url + path, timeout=60) as answer:
                assert words in answer.read()
        with urllib.request.urlopen(f"{metrics.url}metrics", timeout=60) as answer:
            assert b"embershard_examples_total" in answer.read()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_refused(port):
    with pytest.raises(ConfigError, match=f"metrics_port: expected 0..65535, got {port}"):
        MetricsPort(port=port)
