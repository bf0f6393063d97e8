"""Following a repository: what a poll fetches, tells the server and removes; and failures."""

import re

import pytest

from embershard.errors import ConfigError, PackageError, UnavailableError
from embershard.fetch import Selection, WatchOptions, fetch_package, follow
from embershard.fetch import watch as watch_module
from embershard.package.labels import read_labels
from tests.cases import cases, refused
from tests.fetch.conftest import label, never, publish, versions_in
from tests.fetch.watching import Watched
from tests.repository.sources import ROOT


def test_a_poll_fetches_a_version_and_a_label_and_refreshes(far, here):
    publish(far, 1)
    label(far, stable=1)
    watched = Watched(far, here)
    assert watched.poll() == ["fetched", "label_moved", "refreshed"]
    publish(far, 2)
    label(far, stable=2)
    assert watched.poll() == ["fetched", "label_moved", "refreshed"]
    moved = {"model": "small", "label": "stable", "version": 2, "version_before": 1}
    assert watched.events[1] == ("label_moved", moved)
    label(far, stable=1)
    assert watched.poll() == ["label_moved", "refreshed"]
    assert read_labels(here / "small") == {"stable": 1}


def test_a_poll_without_a_change_does_not_refresh_the_server(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.poll()
    assert watched.poll() == []
    assert watched.orders == ["index"]


def test_a_poll_fetches_a_higher_version_without_labels(far, here):
    publish(far, 1)
    watched = Watched(far, here)
    watched.poll()
    publish(far, 2)
    assert watched.poll() == ["fetched", "refreshed"]
    assert versions_in(here) == [1, 2]


def test_a_new_watch_refreshes_the_server_once(far, here):
    """An earlier watch may have been killed between a change and its refresh."""
    publish(far)
    fetch_package(far.as_uri(), here, pause=never)
    watched = Watched(far, here)
    assert watched.poll() == ["refreshed"]
    assert watched.poll() == []


def test_each_watch_of_one_repository_refreshes_its_own_server(far, here):
    publish(far, 1)
    publish(far, 2)
    label(far, stable=1)
    first, second = Watched(far, here), Watched(far, here)
    assert [first.poll(), second.poll()] == [["fetched", "label_moved", "refreshed"], ["refreshed"]]
    label(far, stable=2)
    assert [first.poll(), second.poll()] == [["fetched", "label_moved", "refreshed"], ["refreshed"]]
    assert [first.poll(), second.poll()] == [[], []]


def test_a_refresh_that_no_server_took_is_sent_again(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.error = UnavailableError("no server listens on this control socket")
    assert watched.poll() == ["fetched", "refresh_failed"]
    assert watched.poll() == ["refresh_failed"]
    watched.error = None
    assert watched.poll() == ["refreshed"]
    assert watched.poll() == []


def test_a_refresh_that_the_server_refused_is_sent_again(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.error = PackageError("model 'small' version 1: no samples")
    assert watched.poll() == ["fetched", "refresh_failed"]
    watched.error = None
    assert watched.poll() == ["refreshed"]
    assert watched.poll() == []


def test_a_failed_poll_is_written_and_tried_again(far, here):
    publish(far)
    label(far, stable=1)
    watched = Watched(far, here)
    watched.poll()
    label(far, stable=7)
    assert watched.poll() == ["fetch_failed"]
    failed = watched.events[0][1]
    assert (failed["model"], failed["error"]) == ("small", "NotFoundError")
    assert "small/7/manifest.sha256" in failed["message"]
    assert watched.poll() == ["fetch_failed"]
    label(far, stable=1)
    assert watched.poll() == []


def test_a_model_that_fails_does_not_delay_the_others(far, here):
    damaged = publish(far, model="large")
    publish(far)
    (damaged / "manifest.json").write_bytes(b"damaged")
    watched = Watched(far, here, selection=Selection(all_models=True))
    assert watched.poll() == ["fetch_failed", "fetched", "refreshed"]
    publish(far, 2)
    assert watched.poll() == ["fetch_failed", "fetched", "refreshed"]


def test_a_change_is_sent_at_once_after_one_that_was_refused(far, here):
    publish(far, 1)
    publish(far, 2)
    label(far, stable=2)
    watched = Watched(far, here)
    watched.error = PackageError("model 'small' version 2: no samples")
    assert watched.poll() == ["fetched", "label_moved", "refresh_failed"]
    watched.error = None
    label(far, stable=1)
    assert watched.poll() == ["fetched", "label_moved", "refreshed"]


@pytest.mark.parametrize(("poll_seconds", "expected"), [(0, 30), (12, 18), (29, 3), (100, 3)])
def test_polls_start_an_interval_apart_with_a_pause_between(poll_seconds, expected):
    now, pauses = [0.0], []

    class Slow:
        interval_seconds = 30

        def poll(self):
            now[0] += poll_seconds

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(Slow(), pause=pause, clock=lambda: now[0])
    assert pauses == [expected, expected]


def test_a_pause_looks_for_signals_every_second(monkeypatch):
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(watch_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch_module.time, "sleep", sleep)
    watch_module.sleep_in_steps(2.5)
    assert slept == [1, 1, 0.5]


def test_a_source_that_is_gone_changes_nothing_here(far, here):
    publish(far)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.poll()
    far.rename(far.with_name("gone"))
    for _ in range(3):
        assert watched.poll() == ["fetch_failed"]
    assert versions_in(here) == [1]
    assert read_labels(here / "small") == {"stable": 1}


def test_a_disk_error_does_not_end_the_watch(far, here, monkeypatch):
    publish(far)
    watched = Watched(far, here)

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("embershard.fetch.fetch_version.sync_tree", refuse)
        assert watched.poll() == ["fetch_failed", "refreshed"]
    assert watched.poll() == ["fetched", "refreshed"]


def test_the_page_lists_every_event():
    written = re.findall(r'_write\("(\w+)"', (ROOT / "embershard/fetch/watch.py").read_text())
    assert len(written) > 5
    listed = re.findall(r"`(\w+)`", (ROOT / "docs" / "fetch.md").read_text())
    assert {*written} - {*listed} == set()


@cases(
    ("options", "parts"),
    {
        "zero": ({"interval_seconds": 0.0}, ["watch"]),
        "years": ({"interval_seconds": 1e300}, ["at most 1,000,000", "got 1e+300"]),
        "nan": ({"interval_seconds": float("nan")}, ["watch"]),
        "version": ({"selection": Selection(version=1)}, ["version"]),
        "keep": ({"keep": -1}, ["keep"]),
    },
)
def test_options_that_cannot_be_followed_are_refused(options, parts):
    with refused(ConfigError, *parts):
        WatchOptions(**{"selection": Selection(), **options})
