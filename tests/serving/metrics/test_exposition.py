"""A scrape gets every metric of the server, as prometheus-client writes it."""

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from embershard.serving.metric import Histogram, Metric, Metrics
from embershard.serving.metrics.port import exposition
from tests.serving.metrics.figures import BUSY, FakeServer, busy, of_version

ENDINGS = {"counter": "_total", "info": "_info", "gauge": "", "untyped": ""}


def text(*metrics):
    return exposition(lambda: Metrics(metrics))().decode()


def test_each_kind_is_written_in_its_form():
    labels = {"model": "ranker", "version": "3"}
    written = text(
        Metric("a", "A.", "info", labels, 1),
        Metric("b", "B.", "counter", labels, 2),
        Metric("c", "C.", "gauge", {}, 0.5),
        Metric("d", "D.", "untyped", {"reason": "x"}, 4),
        Metric("e", "E.", "histogram", labels, Histogram([0.5, 1.0], [1, 2, 3], 9.5)),
    )
    ours, process = written.split("# HELP process_virtual_memory_bytes")
    of = 'model="ranker",version="3"'
    assert ours.splitlines() == [
        "# HELP a_info A.",
        "# TYPE a_info gauge",
        f"a_info{{{of}}} 1.0",
        "# HELP b_total B.",
        "# TYPE b_total counter",
        f"b_total{{{of}}} 2.0",
        "# HELP c C.",
        "# TYPE c gauge",
        "c 0.5",
        "# HELP d D.",
        "# TYPE d untyped",
        'd{reason="x"} 4.0',
        "# HELP e E.",
        "# TYPE e histogram",
        f'e_bucket{{le="0.5",{of}}} 1.0',
        f'e_bucket{{le="1.0",{of}}} 3.0',
        f'e_bucket{{le="+Inf",{of}}} 6.0',
        f"e_count{{{of}}} 6.0",
        f"e_sum{{{of}}} 9.5",
    ]
    assert "process_resident_memory_bytes" in process


def test_every_metric_of_the_list_is_exposed():
    samples = {
        sample.name
        for family in text_string_to_metric_families(text(*busy()))
        for sample in family.samples
    }
    for metric in busy():
        ending = "_sum" if metric.kind == "histogram" else ENDINGS[metric.kind]
        assert metric.name + ending in samples


def test_openmetrics_takes_the_names():
    kinds = {family.name: family.type for family in openmetrics_families(openmetrics(busy()))}
    assert kinds["embershard_requests"] == "counter"
    assert kinds["embershard_served_version"] == "info"
    assert kinds["nv_inference_count"] == "unknown"


def openmetrics(metrics):
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    from embershard.serving.metrics.port import Collector

    registry = CollectorRegistry()
    registry.register(Collector(lambda: metrics))
    return generate_latest(registry).decode()


def test_text_of_clients_is_escaped():
    hostile = 'a"b\\c\nd\u2028e f'
    (family, *_) = text_string_to_metric_families(
        text(Metric("a", "A.", "gauge", {"feature": hostile}, 1))
    )
    assert family.samples[0].labels == {"feature": hostile}


def test_tritons_names_stand_as_triton_writes_them():
    of = 'model="ranker",version="3"'
    lines = text(*of_version({"nv_inference_request_success": 66})).splitlines()
    assert f"nv_inference_request_success{{{of}}} 66.0" in lines


def test_versions_come_and_go_between_scrapes():
    server = FakeServer(busy())
    write = exposition(server.metrics)
    write()
    server.now = Metrics([*of_version(BUSY, version=4), *of_version({}, version=5)])
    written = write().decode()
    assert 'embershard_examples_total{model="ranker",version="4"} 91.0' in written
    assert 'embershard_examples_total{model="ranker",version="5"} 0.0' in written
    assert 'version="3"' not in written
    assert server.reads == 2  # One a scrape.
