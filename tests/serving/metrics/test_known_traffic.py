"""A scrape of a real server shows exactly the traffic that it received."""

import urllib.request
from contextlib import contextmanager

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from embershard._proto import predictor_pb2 as pb
from embershard.serving.metrics import MetricsPort
from tests.serving.asking import Asked, named
from tests.serving.refused import Code
from tests.serving.serve import serve

DENSE = {"age": [1.0]}


def asked(examples, **sparse):
    return named(
        Asked(num_examples=examples, dense={**DENSE, "price": [0.5] * examples}, sparse=sparse)
    ).SerializeToString()


@contextmanager
def shown(repository, **options):
    with MetricsPort(port=0) as metrics, serve(repository, **options) as server:
        metrics.show(server)
        yield server, metrics


def scraped(metrics):
    """Values by name and labels; those of the process, and model and version, left out."""
    with urllib.request.urlopen(f"{metrics.url}metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    results = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            served = labels.pop("model", None), labels.pop("version", None)
            if not sample.name.startswith("process_"):
                # Metrics without a version are the server's.
                assert served in {("ranker", "1"), (None, None)}
                results[sample.name, *labels.values()] = sample.value
    return results


def predicted(channel, message):
    call = channel.unary_unary("/embershard.v1.Predictor/Predict").future(message, timeout=60)
    return call.code(), call.result() if call.code() is Code.OK else b""


REQUESTS = [
    # One example; an item that is not in the vocabulary, of two ids.
    (asked(1, item=[[100, 5]]), Code.OK),
    # Three examples; an unknown user, which has a row, an unknown item, and seven ids more.
    (
        asked(3, user=[["nobody"]], item=[[101], [6], []], category=[[1], [2, 3], [4, 5, 0]]),
        Code.OK,
    ),
    (asked(2, category=[[99], []]), Code.INVALID_ARGUMENT),  # Not one of six.
    (asked(2, history=[[100], [101], [102]]), Code.INVALID_ARGUMENT),  # One list, or none.
    (asked(1, colour=[[1]]), Code.INVALID_ARGUMENT),  # No such input.
    (named(Asked(num_examples=1)).SerializeToString() + b"\x0a\x05other", Code.NOT_FOUND),
]


# Upper bounds of the buckets, and the sizes that the good requests below have.
COUNTED = {
    "embershard_batch_examples": ([2.0**power for power in range(17)], [1, 3]),
    "embershard_batch_requests": ([2.0**power for power in range(13)], [1, 1]),
    "embershard_batch_fill_ratio": (
        [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        [1 / 256, 3 / 256],
    ),
    "embershard_request_ids": ([2.0**power for power in range(21)], [2, 9]),
    "embershard_request_examples": ([2.0**power for power in range(17)], [1, 3]),
}
SECONDS = [5e-5, *(digit * 10.0**power for power in range(-4, 1) for digit in (1, 2, 5)), 10.0]
TIMED = {  # The values are fields of an answer's timing, in whole microseconds, rounded down.
    "embershard_queue_seconds": "queue_us",
    "embershard_lookup_seconds": "lookup_us",
    "embershard_dense_seconds": "dense_us",
    "embershard_request_seconds": None,
}


def assert_buckets(before, after, timings):
    """Checks by how much the traffic raised each bucket of each histogram."""
    results = {}
    for name, *labels in after:
        if name.endswith("_bucket"):
            assert len(labels) == 1, (name, labels)
            lines = results.setdefault(name.removesuffix("_bucket"), {})
            lines[float(labels[0])] = after[name, *labels] - before[name, *labels]
    assert set(results.pop("embershard_shadow_difference").values()) == {0}
    assert results.keys() == COUNTED.keys() | TIMED.keys()
    for name, (bounds, values) in COUNTED.items():
        lines = results[name]
        assert list(lines) == pytest.approx([*bounds, float("inf")]), name
        for bound, got in lines.items():
            assert got == sum(value <= bound for value in values), (name, bound)
    for name, field in TIMED.items():
        lines = results[name]
        assert list(lines) == pytest.approx([*SECONDS, float("inf")]), name
        assert lines[float("inf")] == len(timings)
        for bound, got in lines.items():
            if field is None:  # The whole request takes longer than its answer can state.
                least = 0
                most = sum(timing.total_us * 1e-6 <= bound for timing in timings)
            else:
                told = [getattr(timing, field) for timing in timings]
                least = sum((us + 1) * 1e-6 <= bound for us in told)
                most = sum(us * 1e-6 <= bound for us in told)
            assert least <= got <= most, (name, bound, timings)


def test_every_figure_of_known_traffic_is_shown_exactly(repository):
    with shown(repository) as (server, metrics), grpc.insecure_channel(server.address) as channel:
        before = scraped(metrics)
        sent, timings = 0, []
        for message, expected in REQUESTS:  # One after the other: each is a batch of its own.
            code, answer = predicted(channel, message)
            assert code is expected
            sent += len(answer)
            if answer:
                timings.append(pb.PredictResponse.FromString(answer).timing)
        after = scraped(metrics)
        counted = server.metrics()
    assert_buckets(before, after, timings)
    changed = {
        key: after[key] - before[key]
        for key in after
        if after[key] != before[key] and not key[0].endswith("_bucket")
    }
    timed = {name: counted.histogram(name).sum for name in TIMED}
    for name, expected in timed.items():
        assert changed.pop((f"{name}_sum",), 0) == pytest.approx(expected, abs=1e-9)
    compute = timed["embershard_lookup_seconds"] + timed["embershard_dense_seconds"]
    for name, expected in (
        ("request", timed["embershard_request_seconds"]),
        ("queue", timed["embershard_queue_seconds"]),
        ("compute_infer", compute),  # Each request was a batch of its own.
    ):
        got = changed.pop((f"nv_inference_{name}_duration_us",), 0)
        assert got == pytest.approx(expected * 1e6, abs=1)
    lookups = changed.pop(("embershard_device_lookup_seconds_total", "cpu:0"))
    assert 0 < lookups <= timed["embershard_lookup_seconds"] + 1e-5
    ids = 2 + 9
    assert changed == {
        ("embershard_requests_total", "OK", "interactive", ""): 2,
        ("embershard_requests_total", "INVALID_ARGUMENT", "interactive", "refused"): 2,
        ("embershard_requests_total", "INVALID_ARGUMENT", "interactive", "malformed"): 1,
        ("embershard_unserved_requests_total", "NOT_FOUND", "interactive", "not_found"): 1,
        ("embershard_examples_total",): 4,
        ("embershard_batches_total",): 2,
        ("embershard_unknown_ids_total", "item"): 2,
        ("embershard_unknown_ids_total", "user"): 1,
        ("embershard_received_bytes_total",): sum(
            len(message) for message, code in REQUESTS if code != Code.NOT_FOUND
        ),
        ("embershard_sent_bytes_total",): sent,
        ("embershard_request_seconds_count",): 2,
        ("embershard_queue_seconds_count",): 2,
        ("embershard_lookup_seconds_count",): 2,
        ("embershard_dense_seconds_count",): 2,
        ("embershard_batch_examples_count",): 2,
        ("embershard_batch_examples_sum",): 4,
        ("embershard_batch_requests_count",): 2,
        ("embershard_batch_requests_sum",): 2,
        ("embershard_batch_fill_ratio_count",): 2,
        ("embershard_batch_fill_ratio_sum",): 4 / 256,
        ("embershard_request_ids_count",): 2,
        ("embershard_request_ids_sum",): ids,
        ("embershard_request_examples_count",): 2,
        ("embershard_request_examples_sum",): 4,
        ("embershard_device_batches_total", "cpu:0"): 2,
        ("embershard_device_rows_total", "cpu:0"): ids - 2,  # Unknown items have no rows.
        ("nv_inference_request_success",): 2,
        ("nv_inference_request_failure", "OTHER"): 3,
        ("nv_inference_count",): 4,
        ("nv_inference_exec_count",): 2,
    }
