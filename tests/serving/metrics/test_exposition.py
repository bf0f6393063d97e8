"""What a scrape gets: every figure, in prometheus-client's own form."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from embershard.serving.metrics.exposition import Exposition
from embershard.serving.metrics.families import FAMILIES
from tests.serving.metrics.snapshots import FakeServer, busy, empty, empty_version, histogram

SERVED = {"model": "ranker", "version": "3"}
BUSY = {
    "embershard_served_version_info": 1,
    "embershard_default_version": 1,
    "embershard_load_failures_total": 9,
    "embershard_start_time_seconds": 1_700_000_000.25,
    "embershard_requests_total{OK,interactive,}": 40,
    "embershard_requests_total{INVALID_ARGUMENT,interactive,malformed}": 39,
    "embershard_requests_total{INVALID_ARGUMENT,interactive,refused}": 38,
    "embershard_requests_total{NOT_FOUND,interactive,not_found}": 37,
    "embershard_requests_total{FAILED_PRECONDITION,interactive,stale_schema}": 36,
    "embershard_requests_total{INVALID_ARGUMENT,interactive,too_large}": 35,
    "embershard_requests_total{RESOURCE_EXHAUSTED,interactive,queue_full}": 34,
    "embershard_requests_total{RESOURCE_EXHAUSTED,interactive,no_time}": 33,
    "embershard_requests_total{DEADLINE_EXCEEDED,interactive,expired}": 32,
    "embershard_requests_total{DEADLINE_EXCEEDED,interactive,abandoned}": 31,
    "embershard_requests_total{UNAVAILABLE,interactive,shutting_down}": 30,
    "embershard_requests_total{INTERNAL,interactive,model_failed}": 29,
    "embershard_requests_total{INTERNAL,interactive,not_finite}": 28,
    "embershard_requests_total{INTERNAL,interactive,out_of_memory}": 27,
    "embershard_requests_total{OK,batch,}": 26,
    "embershard_requests_total{INVALID_ARGUMENT,batch,malformed}": 25,
    "embershard_requests_total{INVALID_ARGUMENT,batch,refused}": 24,
    "embershard_requests_total{NOT_FOUND,batch,not_found}": 23,
    "embershard_requests_total{FAILED_PRECONDITION,batch,stale_schema}": 22,
    "embershard_requests_total{INVALID_ARGUMENT,batch,too_large}": 21,
    "embershard_requests_total{RESOURCE_EXHAUSTED,batch,queue_full}": 20,
    "embershard_requests_total{RESOURCE_EXHAUSTED,batch,no_time}": 19,
    "embershard_requests_total{DEADLINE_EXCEEDED,batch,expired}": 18,
    "embershard_requests_total{DEADLINE_EXCEEDED,batch,abandoned}": 17,
    "embershard_requests_total{UNAVAILABLE,batch,shutting_down}": 16,
    "embershard_requests_total{INTERNAL,batch,model_failed}": 15,
    "embershard_requests_total{INTERNAL,batch,not_finite}": 14,
    "embershard_requests_total{INTERNAL,batch,out_of_memory}": 13,
    "embershard_examples_total": 91,
    "embershard_batches_total": 11,
    "embershard_batch_reruns_total": 12,
    "embershard_unknown_ids_total{user}": 17,
    "embershard_unknown_ids_total{item}": 26,
    "embershard_received_bytes_total": 123_456,
    "embershard_sent_bytes_total": 65_432,
    "embershard_request_seconds_bucket{0.001}": 10,
    "embershard_request_seconds_bucket{0.002}": 30,
    "embershard_request_seconds_bucket{0.005}": 37,
    "embershard_request_seconds_bucket{0.01}": 39,
    "embershard_request_seconds_bucket{+Inf}": 40,
    "embershard_request_seconds_count": 40,
    "embershard_request_seconds_sum": 0.1875,
    "embershard_queue_seconds_count": 42,
    "embershard_queue_seconds_sum": 0.0625,
    "embershard_lookup_seconds_count": 11,
    "embershard_lookup_seconds_sum": 0.03125,
    "embershard_dense_seconds_count": 11,
    "embershard_dense_seconds_sum": 0.046875,
    "embershard_batch_examples_bucket{1.0}": 1,
    "embershard_batch_examples_count": 11,
    "embershard_batch_examples_sum": 93,
    "embershard_batch_requests_count": 11,
    "embershard_batch_requests_sum": 29,
    "embershard_batch_fill_ratio_bucket{0.5}": 6,
    "embershard_batch_fill_ratio_count": 11,
    "embershard_batch_fill_ratio_sum": 5.8125,
    "embershard_request_ids_count": 43,
    "embershard_request_ids_sum": 500,
    "embershard_request_examples_count": 43,
    "embershard_request_examples_sum": 111,
    "embershard_queued_requests": 14,
    "embershard_queued_examples": 15,
    "embershard_queued_ids": 161,
    "embershard_queued_bytes": 1024,
    "embershard_in_flight_requests": 18,
    "embershard_open_streams": 12,
    "embershard_connections_refused_total": 44,
    "embershard_batch_examples_max": 16,
    "embershard_slots": 2,
    "embershard_table_bytes{cpu:0}": 640,
    "embershard_table_bytes{cpu:1}": 320,
    "embershard_device_lookup_seconds_total{cpu:0}": 0.25,
    "embershard_device_lookup_seconds_total{cpu:1}": 0.125,
    "embershard_device_batches_total{cpu:0}": 11,
    "embershard_device_batches_total{cpu:1}": 10,
    "embershard_device_rows_total{cpu:0}": 701,
    "embershard_device_rows_total{cpu:1}": 702,
    "embershard_shadow_requests_total": 51,
    "embershard_shadow_compared_total": 11,
    "embershard_shadow_dropped_total{schema}": 52,
    "embershard_shadow_dropped_total{copies_under_way}": 54,
    "embershard_shadow_dropped_total{bytes_under_way}": 55,
    "embershard_shadow_failed_total": 53,
    "embershard_shadow_batch_seconds_total": 0.75,
    "embershard_shadow_cpu_seconds_total": 0.375,
    "embershard_shadow_difference_count": 11,
    "embershard_shadow_difference_sum": 0.0078125,
    "embershard_slow_requests_total": 19,
    "embershard_slow_requests_dropped_total": 13,
    "embershard_log_lines_dropped_total": 14,
    "embershard_unauthenticated_calls_total": 10,
    "embershard_certificate_expiry_time_seconds": 1_900_000_000,
    "nv_inference_request_success": 40 + 26,
    "nv_inference_request_failure{REJECTED}": 34 + 33 + 32 + 30 + 20 + 19 + 18 + 16,
    "nv_inference_request_failure{CANCELED}": 31 + 17,
    "nv_inference_request_failure{BACKEND}": 29 + 28 + 27 + 15 + 14 + 13,
    "nv_inference_request_failure{OTHER}": 39 + 38 + 37 + 36 + 35 + 25 + 24 + 23 + 22 + 21,
    "nv_inference_count": 91,
    "nv_inference_exec_count": 11,
    "nv_inference_request_duration_us": 187_500,
    "nv_inference_queue_duration_us": 62_500,
    "nv_inference_compute_infer_duration_us": 500_000,
    "nv_inference_pending_request_count": 14,
}


OF_THE_SERVER = {
    "embershard_load_failures_total",
    "embershard_open_streams",
    "embershard_connections_refused_total",
    "embershard_unserved_requests_total",
    "embershard_slow_requests_total",
    "embershard_slow_requests_dropped_total",
    "embershard_log_lines_dropped_total",
    "embershard_unauthenticated_calls_total",
    "embershard_certificate_expiry_time_seconds",
}


class Families:
    """The same families without the frame, for prometheus-client to write."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def collect(self):
        return [family.metric(self.snapshot) for family in FAMILIES]


def written(snapshot, write=generate_latest):
    registry = CollectorRegistry()
    registry.register(Families(snapshot))
    return write(registry)


def values(text):
    """Values of the server's samples, by name and the values of their own labels."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.name.startswith("process_"):
                continue
            labels = [value for name, value in sample.labels.items() if name not in SERVED]
            if sample.name not in OF_THE_SERVER:
                assert SERVED.items() <= sample.labels.items()
            found[sample.name + (f"{{{','.join(labels)}}}" if labels else "")] = sample.value
    return found


def test_every_figure_of_a_snapshot_is_exposed():
    found = values(Exposition(FakeServer(busy()).snapshot).text())
    assert {name: found[name] for name in BUSY} == BUSY
    rest = {name for name in found.keys() - BUSY.keys() if "_bucket{" not in name}
    assert {name for name in rest if not name.startswith("embershard_unserved")} == set()


@pytest.mark.parametrize("kind", ["text", "openmetrics"])
def test_prometheus_clients_own_parsers_read_it(kind):
    if kind == "text":
        text = Exposition(FakeServer(busy()).snapshot).text().decode()
        families = list(text_string_to_metric_families(text))
    else:
        families = list(openmetrics_families(written(busy(), generate_openmetrics).decode()))
    types = {family.name: family.type for family in families}
    assert types["embershard_request_seconds"] == "histogram"
    assert types["nv_inference_count"] == "unknown"
    assert {name for name in types if not name.startswith("process_")} >= {
        family.name for family in FAMILIES if family.kind in ("gauge", "histogram", "untyped")
    }


def test_tritons_names_stand_as_triton_writes_them():
    lines = Exposition(FakeServer(busy()).snapshot).text().splitlines()
    assert b'nv_inference_request_success{model="ranker",version="3"} 66.0' in lines
    assert (
        b'nv_inference_request_failure{model="ranker",reason="CANCELED",version="3"} 48.0' in lines
    )


def hostile():
    snapshot = busy()
    snapshot["unknown_ids"] = {'a"b\\c\nd\u2028e f': 3, "é": 4}
    return snapshot


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(empty, id="nothing-yet"),
        pytest.param(busy, id="busy"),
        pytest.param(hostile, id="names-that-must-be-escaped"),
    ],
)
def test_the_text_is_prometheus_clients_to_the_byte(snapshot):
    text = Exposition(FakeServer(snapshot()).snapshot).text()
    ours, process = text.split(b"# HELP process_virtual_memory_bytes")
    assert ours == written(snapshot())
    assert b"process_resident_memory_bytes" in process


def test_new_values_are_put_into_the_frame_of_the_old():
    server = FakeServer(empty())
    exposition = Exposition(server.snapshot)
    exposition.text()
    server.now = busy()
    assert exposition.text().startswith(written(busy()))


def with_version(snapshot):
    snapshot["version"] = 4


def with_another_feature(snapshot):
    snapshot["unknown_ids"] = {"user": 1, "topic": 2}


def with_other_bounds(snapshot):
    snapshot["histograms"]["request_ids"] = histogram([1.0, 10.0, 100.0, 1e3, 1e4], [1] * 6, 9)


@pytest.mark.parametrize("change", [with_version, with_another_feature, with_other_bounds])
def test_a_change_of_labels_is_followed(change):
    server = FakeServer(empty())
    exposition = Exposition(server.snapshot)
    exposition.text()
    changed = busy()
    change(changed)
    server.now = changed
    assert exposition.text().startswith(written(changed))


def test_a_scrape_takes_one_snapshot():
    server = FakeServer(busy())
    exposition = Exposition(server.snapshot)
    for _ in range(3):
        exposition.text()
    assert server.snapshots_taken == 3


def test_each_version_has_rows_of_its_own():
    snapshot = busy()
    second = {**empty_version(), "version": 4}
    snapshot["versions"].append(second)
    text = Exposition(FakeServer(snapshot).snapshot).text().decode()
    assert 'embershard_examples_total{model="ranker",version="3"} 91.0' in text
    assert 'embershard_examples_total{model="ranker",version="4"} 0.0' in text
    assert "embershard_open_streams 12.0" in text
    assert 'embershard_unserved_requests_total{code="NOT_FOUND"' in text


def test_versions_come_and_go_between_scrapes():
    server = FakeServer(busy())
    exposition = Exposition(server.snapshot)
    exposition.text()
    server.now["versions"].append({**empty_version(), "version": 4})
    assert b'version="4"' in exposition.text()
    del server.now["versions"][0]
    assert b'version="3"' not in exposition.text()
