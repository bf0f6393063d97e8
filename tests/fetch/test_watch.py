"""Following a repository: what a poll fetches, tells the server and removes; and failures."""

import fcntl
import json
import os
import re
import shutil

import pytest

from embershard.errors import ConfigError, PackageError, UnavailableError
from embershard.fetch import Selection, Source, Watch, WatchOptions, fetch_package
from embershard.package.labels import read_labels, write_labels
from tests.fetch.conftest import publish
from tests.house.sources import ROOT


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here"


def never(seconds):
    raise AssertionError(f"a pause of {seconds} s")


def label(repository, **labels):
    (repository / "small" / "labels.json").write_text(json.dumps(labels))


def versions_in(repository, model="small"):
    return sorted(int(each.name) for each in (repository / model).iterdir() if each.name.isdigit())


class Watched:
    """A watch of `far`, the server that it tells, and the events that it writes."""

    def __init__(self, far, here, *, selection=None, keep=None, url=None):
        self.orders, self.events, self.serving = [], [], {}
        self.error = None
        options = WatchOptions(
            selection=selection or Selection(model="small"), interval_seconds=30, keep=keep
        )
        source = Source(url or far.as_uri(), pause=lambda _: None)
        self.watch = Watch(source, here, options, order=self.order, write=self.write)

    def order(self, name):
        self.orders.append(name)
        if self.error is not None:
            raise self.error
        index = [
            {"model": "small", "version": version, "state": state, "is_default": state == "ready"}
            for version, state in self.serving.items()
        ]
        return {"seconds": 0.5, "index": index}

    def write(self, event, fields):
        self.events.append((event, dict(fields)))

    def poll(self):
        """Seconds to wait, and the names of the events of this poll alone."""
        self.events.clear()
        self.orders.clear()
        seconds = self.watch.poll()
        return seconds, [event for event, _ in self.events]


def test_a_poll_fetches_a_new_version_and_a_label_move_and_refreshes_the_server(far, here):
    publish(far, 1)
    label(far, stable=1)
    watched = Watched(far, here)
    assert watched.poll() == (30, ["fetched", "label_moved", "refreshed"])
    publish(far, 2)
    label(far, stable=2)
    assert watched.poll() == (30, ["fetched", "label_moved", "refreshed"])
    moved = {"model": "small", "label": "stable", "version": 2, "version_before": 1}
    assert watched.events[1] == ("label_moved", moved)
    label(far, stable=1)
    assert watched.poll() == (30, ["label_moved", "refreshed"])
    assert read_labels(here / "small") == {"stable": 1}


def test_a_poll_without_a_change_does_not_refresh_the_server(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.poll()
    assert watched.poll() == (30, [])
    assert watched.orders == []


def test_a_poll_fetches_a_higher_version_without_labels(far, here):
    publish(far, 1)
    watched = Watched(far, here)
    watched.poll()
    publish(far, 2)
    assert watched.poll() == (30, ["fetched", "refreshed"])
    assert versions_in(here) == [1, 2]


def test_a_new_watch_refreshes_the_server_once(far, here):
    """An earlier watch may have been killed between a change and its refresh."""
    publish(far)
    fetch_package(far.as_uri(), here, pause=never)
    watched = Watched(far, here)
    assert watched.poll() == (30, ["refreshed"])
    assert watched.poll() == (30, [])


def test_a_refresh_that_no_server_took_is_sent_again(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.error = UnavailableError("no server takes orders there")
    assert watched.poll() == (30, ["fetched", "refresh_failed"])
    assert watched.poll() == (30, ["refresh_failed"])
    watched.error = None
    assert watched.poll() == (30, ["refreshed"])
    assert watched.poll() == (30, [])


def test_a_refresh_that_the_server_refused_is_sent_again_later(far, here):
    publish(far)
    watched = Watched(far, here)
    watched.error = PackageError("model 'small' version 1: no samples")
    assert watched.poll() == (60, ["fetched", "refresh_failed"])
    watched.error = None
    assert watched.poll() == (30, ["refreshed"])


def test_a_failed_poll_is_written_and_tried_again_with_a_backoff(far, here):
    publish(far)
    label(far, stable=1)
    watched = Watched(far, here)
    watched.poll()
    label(far, stable=7)
    assert watched.poll() == (60, ["fetch_failed"])
    failed = watched.events[0][1]
    assert (failed["model"], failed["error"]) == ("small", "NotFoundError")
    assert "small/7/manifest.sha256" in failed["message"]
    assert watched.poll() == (60, ["fetch_failed"])
    label(far, stable=1)
    assert watched.poll() == (30, [])


@pytest.mark.parametrize(
    ("interval", "expected"), [(1.0, [2, 4, 8, 16, 32, 60, 60]), (300.0, [300, 300])]
)
def test_the_backoff_doubles_up_to_a_minute_or_the_interval(far, here, interval, expected):
    far.mkdir()
    options = WatchOptions(selection=Selection(), interval_seconds=interval)
    watch = Watch(Source(far.as_uri()), here, options, order=None, write=lambda *_: None)
    assert [watch.poll() for _ in expected] == expected


def test_a_source_that_is_gone_changes_nothing_here(far, here):
    publish(far)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.poll()
    far.rename(far.with_name("gone"))
    for _ in range(3):
        assert watched.poll()[1] == ["fetch_failed"]
    assert versions_in(here) == [1]
    assert read_labels(here / "small") == {"stable": 1}


def test_a_disk_error_does_not_end_the_watch(far, here, monkeypatch):
    publish(far)
    watched = Watched(far, here)

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("embershard.fetch.fetching.sync_tree", refuse)
        assert watched.poll()[1] == ["fetch_failed", "refreshed"]
    assert watched.poll()[1] == ["fetched", "refreshed"]


def test_a_model_that_fails_does_not_keep_another_from_the_server(far, here):
    damaged = publish(far, model="large")
    publish(far)
    (damaged / "manifest.json").write_bytes(b"damaged")
    watched = Watched(far, here, selection=Selection(all_models=True))
    assert watched.poll() == (60, ["fetch_failed", "fetched", "refreshed"])


def test_old_versions_are_removed_but_those_labelled_served_followed_and_kept(far, here):
    for version in range(1, 9):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    write_labels(here, "small", {"shadow": 2})
    (here / "small" / "3.sig").write_bytes(b"s" * 64)
    (here / "small" / "6.sig").write_bytes(b"s" * 64)
    watched = Watched(far, here, keep=2)
    watched.serving = {4: "ready", 5: "loading", 6: "failed"}
    assert watched.poll()[1] == ["label_moved", "refreshed", "removed", "removed"]
    assert [fields["version"] for event, fields in watched.events if event == "removed"] == [3, 6]
    assert versions_in(here) == [1, 2, 4, 5, 7, 8]
    left = {each.name for each in (here / "small").iterdir() if not each.name.isdigit()}
    assert left == {"labels.json"}
    assert watched.poll() == (30, [])


def test_nothing_is_removed_without_keep(far, here):
    for version in range(1, 5):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    assert "removed" not in Watched(far, here).poll()[1]
    assert versions_in(here) == [1, 2, 3, 4]


def test_nothing_is_removed_until_the_server_has_followed(far, here):
    for version in (1, 2):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.error = UnavailableError("no server takes orders there")
    assert watched.poll()[1] == ["label_moved", "refresh_failed"]
    assert versions_in(here) == [1, 2]
    watched.error = None
    assert watched.poll()[1] == ["refreshed", "removed"]
    assert versions_in(here) == [1]


def test_nothing_is_removed_where_the_server_does_not_say_what_it_serves(far, here):
    for version in (1, 2):
        publish(far, version)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.poll()
    publish(here, 2)
    watched.error = UnavailableError("the server ended before it had answered")
    assert watched.poll()[1] == ["remove_failed"]
    assert versions_in(here) == [1, 2]


def test_a_version_that_is_followed_but_does_not_load_is_kept(far, here):
    publish(far, 1)
    publish(far, 2)
    watched = Watched(far, here, keep=0)
    watched.serving = {1: "ready", 2: "failed"}
    watched.poll()
    assert watched.poll() == (30, [])
    assert versions_in(here) == [2]


def test_leftovers_are_removed_unless_a_fetch_is_at_work(far, here):
    publish(far, 4)
    for version in (1, 2, 3):
        publish(here, version)
    for name in (".fetching-4", ".fetching-5", ".fetching-6", ".removing-7"):
        (here / "small" / name / "package").mkdir(parents=True)
    watched = Watched(far, here, keep=1)
    descriptor = os.open(here / "small" / ".fetching-6", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        watched.poll()
    finally:
        os.close(descriptor)
    left = {each.name for each in (here / "small").iterdir()}
    assert left == {"3", "4", ".fetching-6"}


def test_a_removal_that_was_killed_halfway_is_completed(far, here, monkeypatch):
    for version in (1, 2):
        publish(here, version)
    publish(far, 3)
    watched = Watched(far, here, keep=0)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            watched.poll()
    publish(here, 4)
    watched.poll()
    watched.poll()
    assert {each.name for each in (here / "small").iterdir()} == {"3"}


def test_the_page_lists_every_event():
    written = re.findall(r'_write\("(\w+)"', (ROOT / "embershard/fetch/watching.py").read_text())
    assert len(written) > 5
    listed = re.findall(r"`(\w+)`", (ROOT / "docs" / "fetch.md").read_text())
    assert {*written} - {*listed} == set()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"interval_seconds": 0.0}, "watch: expected seconds above 0", id="zero"),
        pytest.param({"interval_seconds": float("nan")}, "watch: expected seconds", id="nan"),
        pytest.param({"selection": Selection(version=1)}, "version: expected none", id="version"),
        pytest.param({"keep": -1}, "keep: expected a number from 0", id="keep"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        WatchOptions(**{"selection": Selection(), **options})


def test_versions_are_removed_only_with_a_server_to_ask(far, here):
    far.mkdir()
    options = WatchOptions(selection=Selection(), keep=1)
    with pytest.raises(ConfigError, match="keep: expected a server's control socket"):
        Watch(Source(far.as_uri()), here, options, order=None, write=print)
