"""A version that is damaged on the remote is not downloaded again before its files there change."""

import os

import pytest

from embershard.fetch import Source
from tests.cases import cases
from tests.fetch.conftest import ROWS, publish
from tests.fetch.test_damaged import CHUNK, flip
from tests.fetch.watching import Watched

POLLS = 20


@pytest.fixture
def downloads(monkeypatch):
    """Every file that was read, in order."""
    read, blocks = [], Source.blocks

    def counted(source, file, offset):
        read.append(file)
        return blocks(source, file, offset)

    monkeypatch.setattr(Source, "blocks", counted)
    return read


@pytest.fixture(params=["folder", "web", "store"])
def remote(request, far):
    """The URL of `far`, and what makes a change of `far` visible there."""
    if request.param == "folder":
        return far.as_uri(), lambda: None
    there = request.getfixturevalue(request.param)
    return there.url, (lambda: there.put(far)) if request.param == "store" else lambda: None


def test_20_polls_download_a_damaged_file_twice(far, here, remote, downloads):
    url, put = remote
    damaged = publish(far) / CHUNK
    whole = damaged.read_bytes()
    flip(damaged)
    put()
    watched = Watched(url, here)
    events = [watched.poll() for _ in range(POLLS)]
    assert all("fetch_failed" in event for event in events)
    assert len({fields["message"] for _, fields in watched.events}) == 1
    assert f"{CHUNK}: sha256: expected" in watched.events[0][1]["message"]
    assert downloads.count(f"small/1/{CHUNK}") == 2
    damaged.write_bytes(whole)
    put()
    assert watched.poll()[0] == "fetched"
    assert (here / "small" / "1" / CHUNK).read_bytes() == whole


@cases(
    ("file", "count"),
    {"manifest": ("manifest.json", 1), "chunk": (CHUNK, 2)},
)
def test_a_changed_but_still_damaged_file_is_downloaded_again(far, here, downloads, file, count):
    damaged = publish(far) / file
    flip(damaged)
    watched = Watched(far, here)
    for _ in range(3):
        watched.poll()
    assert downloads.count(f"small/1/{file}") == count
    os.utime(damaged)
    for _ in range(3):
        assert watched.poll()[0] == "fetch_failed"
    assert downloads.count(f"small/1/{file}") == 2 * count


def test_a_package_published_anew_is_downloaded(far, here, downloads):
    package = publish(far)
    flip(package / CHUNK)
    watched = Watched(far, here)
    watched.poll()
    package.rename(far / "moved_away")
    publish(far, rows=ROWS ^ 1)
    assert watched.poll()[0] == "fetched"


def test_a_file_without_etag_and_time_is_downloaded_each_time(far, here, web, downloads):
    """Nothing would tell that it was published again."""
    web.dates = False
    flip(publish(far) / CHUNK)
    watched = Watched(web.url, here)
    for _ in range(3):
        assert watched.poll()[0] == "fetch_failed"
    assert downloads.count(f"small/1/{CHUNK}") == 6
