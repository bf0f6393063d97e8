"""Sums over versions that come and go."""

from embershard.serving.totals import Totals
from tests.serving.metrics.snapshots import busy, empty_version


def native(*versions, ended=0):
    server = busy()
    return {
        "versions": list(versions),
        "unserved": [{**each, "count": 1} for each in server["requests"]],
        "in_flight": 2,
        "bytes_received": 100,
        "start_unix_seconds": 1_600_000_000.0,
        "open_streams": 3,
        "connections_refused": 4,
        "slow": {"seen": 5, "dropped": 6},
        "refused_calls": 7,
        "certificate_expires_unix_seconds": 8,
        "answered_by_ended": ended,
    }


def one(**changed):
    return {**busy()["versions"][0], **changed}


def ok(snapshot):
    return sum(each["count"] for each in snapshot["requests"] if each["code"] == "OK")


def test_of_one_version_it_is_that_and_what_belongs_to_none():
    snapshot = Totals().snapshot(native(one()))
    assert (snapshot["model"], snapshot["version"]) == ("ranker", 3)
    assert ok(snapshot) == 66 + 2
    assert snapshot["in_flight"] == 18 + 2
    assert snapshot["bytes_received"] == 123_456 + 100
    assert snapshot["examples"] == 91
    assert snapshot["start_unix_seconds"] == 1_600_000_000.0


def test_a_model_without_a_default_version_has_version_0():
    snapshot = Totals().snapshot(native(one(is_default=False)))
    assert (snapshot["model"], snapshot["version"]) == ("ranker", 0)


def test_load_failures_are_counted():
    totals = Totals()
    assert totals.snapshot(native(one()))["load_failures"] == 0
    totals.count_load_failure()
    totals.count_load_failure()
    assert totals.snapshot(native(one()))["load_failures"] == 2


def test_of_several_models_it_says_how_many():
    snapshot = Totals().snapshot(native(one(), one(model="finder", is_default=False)))
    assert (snapshot["model"], snapshot["version"]) == ("2 models", 0)
    assert snapshot["examples"] == 2 * 91
    assert snapshot["histograms"]["request_seconds"]["counts"] == [20, 40, 14, 4, 2]
    assert [each["rows"] for each in snapshot["devices"]] == [2 * 701, 2 * 702]


def test_what_an_ended_version_counted_stays_and_what_it_held_does_not():
    totals = Totals()
    totals.snapshot(native(one()))
    snapshot = totals.snapshot(native({**empty_version(), "version": 4}))
    assert snapshot["version"] == 4
    assert ok(snapshot) == 66 + 2
    assert snapshot["examples"] == 91
    assert snapshot["unknown_ids"] == {"user": 17, "item": 26}
    assert snapshot["queued"] == {"requests": 0, "examples": 0, "ids": 0, "bytes": 0}
    assert snapshot["in_flight"] == 2
    assert [each["table_bytes"] for each in snapshot["devices"]] == [640, 320]
    again = totals.snapshot(native({**empty_version(), "version": 5}))
    assert again["examples"] == 91  # Once.


def test_a_version_that_is_loaded_again_begins_anew():
    totals = Totals()
    totals.snapshot(native(one()))
    snapshot = totals.snapshot(native(one(start_unix_seconds=1_800_000_000.0)))
    assert snapshot["examples"] == 2 * 91


def test_without_any_version_the_sums_stay():
    totals = Totals()
    totals.snapshot(native(one()))
    snapshot = totals.snapshot(native())
    assert (snapshot["model"], snapshot["version"]) == ("0 models", 0)
    assert snapshot["examples"] == 91
