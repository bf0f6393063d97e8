"""The status of a watch: wanted and served versions, failures, and the last successful poll."""

import shutil

import pytest

from embershard.errors import PackageError, UnavailableError
from embershard.fetch import Selection
from embershard.fetch.watch_status import WatchStatus
from tests.fetch.conftest import label, publish
from tests.fetch.test_damaged import CHUNK, flip
from tests.fetch.watching import Watched


@pytest.fixture
def watched(far, here):
    """A watch whose clock stands still at 1000 s until a test moves it."""
    made = Watched(far, here)
    made.now = 1000.0
    made.watch.status = WatchStatus(
        interval_seconds=30, monotonic=lambda: made.now, wall=lambda: 5e8 + made.now
    )
    return made


def value(watched, name, **labels):
    """Value of a metric. None: there is no such series."""
    rows = watched.watch.status.rows()
    results = [row[4] for row in rows if row[0] == f"embershard_watch_{name}" and row[3] == labels]
    return results[0] if results else None


def versions(watched, label):
    which = {"model": "small", "label": label}
    return value(watched, "wanted_version", **which), value(watched, "served_version", **which)


def test_wanted_and_served_versions_differ_until_one_loads(far, watched):
    publish(far, 1)
    publish(far, 2)
    label(far, stable=1)
    watched.serving = {1: "ready"}
    watched.poll()
    assert versions(watched, "stable") == (1, 1)
    label(far, stable=2)
    watched.serving, watched.error = {1: "ready", 2: "failed"}, PackageError("no samples")
    watched.poll()
    assert versions(watched, "stable") == (2, 1)
    assert value(watched, "failures", event="refresh_failed") == 1
    assert watched.watch.status.problems() == [
        "the last poll failed in part: the log says why",
        "small stable: wanted 2, serving 1",
    ]
    watched.serving, watched.error = {2: "ready"}, None
    watched.poll()
    assert versions(watched, "stable") == (2, 2)
    assert watched.watch.status.problems() == []


def test_a_version_that_cannot_be_fetched_is_wanted_all_the_same(far, watched):
    publish(far, 1)
    flip(publish(far, 2, model="small") / CHUNK)
    label(far, stable=2)
    watched.serving = {1: "ready"}
    watched.poll()
    assert versions(watched, "stable") == (2, 1)
    assert value(watched, "failures", event="fetch_failed") == 1


def test_without_labels_the_highest_version_is_wanted(far, watched):
    publish(far, 1)
    publish(far, 2)
    watched.serving = {2: "ready"}
    watched.poll()
    assert versions(watched, "") == (2, 2)


def test_a_server_that_does_not_answer_serves_nothing(far, watched):
    publish(far, 1)
    watched.serving = {1: "ready"}
    watched.poll()
    watched.error = UnavailableError("no server listens on this control socket")
    assert watched.poll() == ["index_failed"]
    assert versions(watched, "") == (1, 0)


def test_the_time_of_success_is_that_of_a_poll_without_failure(far, watched):
    assert value(watched, "success_time_seconds") == 0
    publish(far)
    watched.serving = {1: "ready"}
    watched.poll()
    assert value(watched, "success_time_seconds") == 500_001_000
    far.rename(far.with_name("gone"))
    for watched.now in (1030, 1300):
        watched.poll()
    assert value(watched, "success_time_seconds") == 500_001_000
    assert value(watched, "failures", event="fetch_failed") == 2
    assert len(watched.watch.status.problems()) == 1
    watched.now = 1301
    watched.poll()
    assert "no poll has succeeded for 301 s" in watched.watch.status.problems()
    far.with_name("gone").rename(far)
    watched.poll()
    assert value(watched, "success_time_seconds") == 500_001_301
    assert watched.watch.status.problems() == []


def test_blocks_of_a_long_transfer_are_signs_of_life(far, here, watched):
    publish(far)
    beats = []
    status = watched.watch.status
    beat = status.beat

    def counted(*done):
        beats.append(done)
        beat()

    status.beat = counted
    watched.poll()
    assert len([done for done in beats if done]) > 3
    watched.now += 40
    assert status.idle_seconds() == 40


def test_without_a_server_no_served_version_is_stated(far, here):
    publish(far)
    watched = Watched(far, here, selection=Selection(model="small"))
    watched.watch._order = None
    watched.poll()
    assert versions(watched, "") == (1, None)
    assert watched.watch.status.problems() == []


def test_a_model_that_the_remote_dropped_is_not_wanted(far, here):
    publish(far)
    publish(far, model="other")
    everything = Watched(far, here, selection=Selection(all_models=True))
    everything.poll()
    assert value(everything, "wanted_version", model="other", label="") == 1
    shutil.rmtree(far / "other")
    everything.serving = {1: "ready"}
    everything.poll()
    assert value(everything, "wanted_version", model="other", label="") is None
    assert versions(everything, "") == (1, 1)
    assert everything.watch.status.problems() == []


def test_a_failure_stays_until_a_poll_without_one_has_ended():
    status = WatchStatus(interval_seconds=30)
    failed = ["the last poll failed in part: the log says why"]
    status.begin_poll()
    status.fail("fetch_failed")
    assert status.problems() == []
    status.end_poll()
    assert status.problems() == failed
    status.begin_poll()
    assert status.problems() == failed
    status.end_poll()
    assert status.problems() == []
