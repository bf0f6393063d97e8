"""Counts since the start, while versions come and go."""

from embershard.serving.metric import Metrics
from embershard.serving.metrics.history import Totals
from tests.serving.metrics.figures import BUSY, REQUESTS, of_server, of_version


def server(*versions):
    return Metrics([*(metric for version in versions for metric in version), *of_server()])


def one(version=3, **changed):
    changed = {f"embershard_{name}": value for name, value in changed.items()}
    return list(of_version({**BUSY, **changed}, version=version, requests=REQUESTS))


def idle(version):
    return list(of_version({}, version=version))


def test_of_the_versions_that_are_served_it_is_the_sum():
    total = Totals().add(server(one(), one(4)))
    assert total.total("embershard_examples") == 2 * 91
    assert total.histogram("embershard_request_seconds").counts == [20, 40, 14, 4, 2]
    assert total.by("embershard_device_rows", "device") == {"cpu:0": 2 * 701, "cpu:1": 2 * 702}


def test_counts_of_an_ended_version_stay_but_not_its_gauges():
    totals = Totals()
    totals.add(server(one()))
    total = totals.add(server(idle(4)))
    assert total.total("embershard_requests", code="OK") == 66
    assert total.total("embershard_examples") == 91
    assert total.total("nv_inference_count") == 0
    assert total.histogram("embershard_request_seconds").sum == 0.1875
    assert total.by("embershard_unknown_ids", "feature") == {"user": 17, "item": 26}
    assert total.total("embershard_queued_requests") == 0
    assert total.total("embershard_in_flight_requests") == 0
    assert total.by("embershard_table_bytes", "device") == {"cpu:0": 640, "cpu:1": 320}
    assert total.total("embershard_examples", version=4) == 0
    again = totals.add(server(idle(5)))
    assert again.total("embershard_examples") == 91  # Counted once.


def test_ended_versions_are_added_up():
    totals = Totals()
    for version in (3, 4, 5):
        totals.add(server(one(version)))
    total = totals.add(server(idle(6)))
    assert total.total("embershard_examples") == 3 * 91
    assert total.histogram("embershard_request_seconds").observations == 3 * 40
    # One for version 6, and one for all that ended.
    assert len(total.find("embershard_examples")) == 2


def test_what_an_ended_version_counted_stays_with_its_model():
    totals = Totals()
    totals.add(server(one()))
    total = totals.add(server(idle(4), of_version({}, model="finder")))
    times = total.histogram("embershard_request_seconds", model="ranker")
    assert times.observations == total.histogram("embershard_request_seconds").observations == 40


def test_a_version_that_is_loaded_again_begins_anew():
    totals = Totals()
    totals.add(server(one()))
    total = totals.add(server(one(start_time_seconds=1_800_000_000.0)))
    assert total.total("embershard_examples") == 2 * 91


def test_without_any_version_the_sums_stay():
    totals = Totals()
    totals.add(server(one()))
    assert totals.add(server()).total("embershard_examples") == 91
