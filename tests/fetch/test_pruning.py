"""Which versions a watch removes, and that it removes none before the server has followed."""

import fcntl
import os
import shutil

import pytest

from embershard.errors import ConfigError, UnavailableError
from embershard.fetch import Selection, Source, Watch, WatchOptions
from embershard.package.labels import write_labels
from tests.cases import refused
from tests.fetch.conftest import label, publish, versions_in
from tests.fetch.watching import Watched


def test_old_versions_that_nothing_needs_are_removed(far, here):
    for version in range(1, 9):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    write_labels(here, "small", {"shadow": 2})
    (here / "small" / "3.sig").write_bytes(b"s" * 64)
    (here / "small" / "6.sig").write_bytes(b"s" * 64)
    watched = Watched(far, here, keep=2)
    watched.serving = {4: "ready", 5: "loading", 6: "failed"}
    assert watched.poll() == ["label_moved", "refreshed", "removed", "removed"]
    assert [fields["version"] for event, fields in watched.events if event == "removed"] == [3, 6]
    assert versions_in(here) == [1, 2, 4, 5, 7, 8]
    left = {path.name for path in (here / "small").iterdir() if not path.name.isdigit()}
    assert left == {"labels.json"}
    assert watched.poll() == []


def test_the_version_that_was_stable_is_kept_for_a_rollback(far, here):
    for version in (1, 2, 3, 4):
        publish(far, version)
        publish(here, version)
    label(far, stable=2)
    watched = Watched(far, here, keep=1)
    watched.poll()
    assert versions_in(here) == [2, 4]
    label(far, stable=3)
    watched.poll()
    assert versions_in(here) == [2, 3]


def test_former_stable_versions_stay_before_failed_canaries(far, here):
    both = Selection(model="small", labels=("stable", "canary"))
    watched = Watched(far, here, keep=1, selection=both)

    def poll(**labels):
        label(far, **labels)
        watched.poll()
        return versions_in(here)

    for version in range(1, 7):
        publish(far, version)
    assert poll(stable=1) == [1]
    assert poll(stable=2) == [1, 2]
    assert poll(stable=2, canary=3) == [1, 2, 3]
    assert poll(stable=2) == [1, 2]
    assert poll(stable=2, canary=4) == [1, 2, 4]
    assert poll(stable=2) == [1, 2]
    watched = Watched(far, here, keep=1, selection=both)  # The watch was started again.
    assert poll(stable=2, canary=5) == [1, 2, 5]
    assert poll(stable=2) == [1, 2]
    assert poll(stable=6) == [2, 6]  # Version 2 was stable last.
    assert {path.name for path in (here / "small").glob(".stable-*")} == {".stable-2"}


def test_nothing_is_removed_without_keep(far, here):
    for version in range(1, 5):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    assert "removed" not in Watched(far, here).poll()
    assert versions_in(here) == [1, 2, 3, 4]


def test_nothing_is_removed_until_the_server_has_followed(far, here):
    for version in (1, 2):
        publish(far, version)
        publish(here, version)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.error = UnavailableError("no server listens on this control socket")
    assert watched.poll() == ["label_moved", "refresh_failed"]
    assert versions_in(here) == [1, 2]
    watched.error = None
    assert watched.poll() == ["refreshed", "removed"]
    assert versions_in(here) == [1]


def test_nothing_is_removed_if_the_served_versions_are_unknown(far, here):
    for version in (1, 2):
        publish(far, version)
    label(far, stable=1)
    watched = Watched(far, here, keep=0)
    watched.poll()
    publish(here, 2)
    watched.error = UnavailableError("the server ended before it answered")
    assert watched.poll() == ["index_failed"]
    assert versions_in(here) == [1, 2]


def test_a_version_that_is_followed_but_does_not_load_is_kept(far, here):
    publish(far, 1)
    publish(far, 2)
    watched = Watched(far, here, keep=0)
    watched.serving = {1: "ready", 2: "failed"}
    watched.poll()
    assert watched.poll() == []
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
    left = {path.name for path in (here / "small").iterdir()}
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
    assert {path.name for path in (here / "small").iterdir()} == {"3"}


def test_versions_are_removed_only_with_a_server_to_ask(far, here):
    far.mkdir()
    options = WatchOptions(selection=Selection(), keep=1)
    with refused(ConfigError, "keep"):
        Watch(Source(far.as_uri()), here, options, order=None, write=print)
