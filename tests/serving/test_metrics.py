"""A server's metrics of known traffic: every figure."""

import json
import shutil
import threading
import time
from types import SimpleNamespace

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.errors import NotFoundError, PackageError, RequestError
from tests.serving.asking import Asked, named, packed
from tests.serving.serve import serve

# Three examples. Of its lists' ids, max_ids leaves the last 5 of `history` and 4 of `topics`.
LARGE = Asked(
    num_examples=3,
    dense={"age": [30.0], "price": [1.0, 2.0, 3.0]},
    sparse={
        "user": [["nobody"]],
        "item": [[100], [5], []],
        "history": [[100, 101, 102, 103, 104, 7, 8]],
        "query": [["red", "shoes"]],
        "category": [[0, 1], [], [5]],
        "tags": [[0], [9], []],
        "topics": [[1, 2, 3, 4, 5]],
    },
    weights={"tags": [[1.0], [1.0], []], "topics": [[1.0] * 5]},
)
SMALL = Asked(
    num_examples=2,
    dense={"age": [30.0], "price": [1.0, 2.0]},
    sparse={"user": [["u1"]], "item": [[101], [102]]},
)
IDS = [1 + 2 + 5 + 2 + 3 + 2 + 4, 3]
UNKNOWN = {"user": 1, "item": 1, "history": 2, "tags": 1, "query": 0, "category": 0, "topics": 0}

# Unknown items are no rows; unknown users and tags are a row of their own.
ROWS = {
    "users": 1 + 1,
    "items": 1 + 3 + 2,
    "queries": 2,
    "categories": 3,
    "tags": 2,
    "topics": 4,
}
# Rows, each of them a byte a column and 4 for scale and bias.
TABLE_BYTES = {
    "users": 43 * 12,
    "items": 64 * 12,
    "queries": 31 * 8,
    "categories": 6 * 8,
    "tags": 9 * 8,
    "topics": 17 * 8,
}


UNKNOWN_FIELD = b"\xa2\x06" + b"\xa0\x8d\x06" + b"x" * 100_000
"""Field 100, text of 100,000 bytes: no field of ours, but held in memory all the same."""


def refused_messages(fingerprint):
    """Messages, each with the code and the reason of its refusal."""
    malformed = named(SMALL)
    malformed.dense[0].values += b"x"
    unknown_category = Asked(
        num_examples=1, dense={"age": [1.0], "price": [1.0]}, sparse={"category": [[99]]}
    )
    other_model = named(SMALL)
    other_model.model = "other"
    large = named(SMALL)
    large.MergeFromString(UNKNOWN_FIELD)
    return [
        (malformed, "INVALID_ARGUMENT", "malformed"),
        (named(unknown_category), "INVALID_ARGUMENT", "refused"),
        (other_model, "NOT_FOUND", "not_found"),
        (packed(SMALL, fingerprint ^ 1), "FAILED_PRECONDITION", "stale_schema"),
        (large, "INVALID_ARGUMENT", "too_large"),
    ]


def send(server, messages):
    """Sends one after the other; returns the status codes of those that failed."""
    codes = []
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        for message in messages:
            call = predict.future(message.SerializeToString(), timeout=60)
            if call.code() is not grpc.StatusCode.OK:
                codes.append(call.code().name)
    return codes


@pytest.fixture(scope="module")
def traffic(repository, fingerprint):
    """A server, on two devices, that has been asked twice in vain and in earnest."""
    good = [named(LARGE), packed(SMALL, fingerprint)]
    refused = refused_messages(fingerprint)
    before = time.time()
    with serve(
        repository, plan="2xcpu", max_queued_bytes=100_000, slow_request_ms=60_000
    ) as server:
        started = time.time()
        send(server, good)
        codes = send(server, [message for message, _, _ in refused])
        yield SimpleNamespace(
            server=server,
            metrics=server.metrics(),
            packages=server.packages,
            started=(before, started),
            refused=refused,
            codes=codes,
        )


def histogram(traffic, name):
    """How many it holds, and their sum."""
    histogram = traffic.metrics.histogram(f"embershard_{name}")
    assert len(histogram.counts) == len(histogram.bounds) + 1
    assert histogram.bounds == sorted(set(histogram.bounds))
    return histogram.observations, histogram.sum


def test_it_names_what_is_served_since_when(traffic):
    (package,) = traffic.packages
    assert (package.model, package.version, package.is_default) == ("ranker", 1, True)
    of = {"model": "ranker", "version": 1}
    assert traffic.metrics.total("embershard_batch_examples_max", **of) == 1024
    before, after = traffic.started
    assert before <= traffic.metrics.total("embershard_start_time_seconds", **of) <= after


def test_requests_are_counted_by_code_and_reason(traffic):
    assert traffic.codes == [code for _, code, _ in traffic.refused]
    metrics = traffic.metrics
    assert metrics.total("embershard_requests", priority="background") == 0
    (not_found,) = [item for item in metrics.find("embershard_unserved_requests") if item.value]
    assert not_found.labels == {
        "code": "NOT_FOUND",
        "reason": "not_found",
        "priority": "interactive",
    }
    assert {
        (item.labels["code"], item.labels["reason"]): item.value
        for item in metrics.find("embershard_requests", priority="interactive")
    } == {
        ("OK", ""): 2,
        **{(code, reason): 1 for _, code, reason in traffic.refused},
        ("NOT_FOUND", "not_found"): 0,
        ("RESOURCE_EXHAUSTED", "queue_full"): 0,
        ("RESOURCE_EXHAUSTED", "deadline_infeasible"): 0,
        ("DEADLINE_EXCEEDED", "expired"): 0,
        ("DEADLINE_EXCEEDED", "abandoned"): 0,
        ("UNAVAILABLE", "shutting_down"): 0,
        ("UNAVAILABLE", "withdrawn"): 0,
        ("INTERNAL", "model_failed"): 0,
        ("INTERNAL", "not_finite"): 0,
        ("INTERNAL", "out_of_memory"): 0,
    }


def test_examples_ids_and_batches_are_counted(traffic):
    metrics = traffic.metrics
    assert metrics.total("embershard_examples") == 5
    assert metrics.total("embershard_batches") == 2
    assert metrics.by("embershard_unknown_ids", "feature") == UNKNOWN
    assert histogram(traffic, "batch_requests") == (2, 2)
    assert histogram(traffic, "batch_examples") == (2, 5)
    assert histogram(traffic, "batch_fill_ratio") == (2, 5 / 256)


def test_valid_requests_that_the_queue_refuses_are_counted(traffic):
    assert histogram(traffic, "request_examples") == (3, 3 + 2 + 2)
    assert histogram(traffic, "request_ids") == (3, sum(IDS) + 3)
    result = traffic.metrics.histogram("embershard_request_ids")
    filled = dict(zip([*result.bounds, None], result.counts, strict=True))
    assert {bound: count for bound, count in filled.items() if count} == {4.0: 2, 32.0: 1}


def test_devices_have_their_tables_and_what_was_looked_up_there(traffic, package):
    tables = [
        table["name"] for table in json.loads((package / "manifest.json").read_text())["tables"]
    ]
    assert set(tables) == set(ROWS)

    def of_devices(name):
        return traffic.metrics.by(f"embershard_{name}", "device")

    # The plan deals the tables out in turn.
    here = {f"cpu:{position}": tables[position::2] for position in range(2)}
    assert of_devices("table_bytes") == {
        device: sum(TABLE_BYTES[name] for name in names) for device, names in here.items()
    }
    assert of_devices("device_rows") == {
        device: sum(ROWS[name] for name in names) for device, names in here.items()
    }
    assert of_devices("device_batches") == {"cpu:0": 2, "cpu:1": 2}  # Without those of samples.
    for seconds in of_devices("device_lookup_seconds").values():
        assert 0 < seconds <= histogram(traffic, "lookup_seconds")[1] + 2e-6


def test_a_slow_request_is_described(repository):
    message = named(LARGE)
    message.request_id = "é-17"
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with (
        serve(repository, slow_request_ms=0.001) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        before = time.time()
        answer = predict(message.SerializeToString(), timeout=60, metadata=[("traceparent", trace)])
        (slow,) = server.wait_slow(60)
        assert before <= slow.pop("unix_seconds") <= time.time()
        timing = pb.PredictResponse.FromString(answer).timing
        assert timing.total_us <= slow.pop("total_us")
        host, _, port = slow.pop("peer").rpartition(":")
        assert (host, port.isdigit()) == ("ipv4:127.0.0.1", True)
        assert slow == {
            "code": "OK",
            "reason": "",
            "message": "",
            "examples": 3,
            "ids": IDS[0],
            "bytes": len(message.SerializeToString()),
            "traceparent": trace,
            "request_id": "é-17",
            "queue_us": timing.queue_us,
            "lookup_us": timing.lookup_us,
            "dense_us": timing.dense_us,
        }
        assert server.metrics().total("embershard_slow_requests") == 1
        assert server.metrics().total("embershard_slow_requests_dropped") == 0


def test_waiting_for_a_slow_request_holds_nobody_up(repository):
    with serve(repository, slow_request_ms=0.001) as server:
        taken = []
        waits = threading.Thread(target=lambda: taken.extend(server.wait_slow(600)))
        waits.start()
        send(server, [named(SMALL)])
        waits.join(60)
        assert [item["examples"] for item in taken] == [2]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 1e10])
def test_a_wait_without_sense_is_refused(server, seconds):
    with pytest.raises(RequestError, match=r"timeout_seconds: expected 0\.\.2147483647, got "):
        server.wait_slow(seconds)


def test_a_version_that_could_not_be_loaded_is_counted(repository, tmp_path):
    copied = shutil.copytree(repository, tmp_path / "repository")
    with serve(copied) as server:
        for name, version in (("finder", 0), ("ranker", 9)):  # The caller's mistakes.
            with pytest.raises(NotFoundError):
                server.load(name, version)
        assert server.metrics().total("embershard_load_failures") == 0
        damaged = copied / "ranker" / "2"
        damaged.mkdir()
        (damaged / "manifest.json").write_text("{}")
        with pytest.raises(PackageError):
            server.load("ranker", 2)
        assert server.metrics().total("embershard_load_failures") == 1
        send(server, [named(SMALL)])  # The loaded version still answers.
