"""Fetches into folders that cannot be written."""

import errno
import os
from pathlib import Path

import pytest

from embershard.errors import InputError
from embershard.fetch import fetch_package
from tests.fetch.conftest import never, publish


@pytest.fixture(autouse=True)
def published(far):
    publish(far)


def refused(far, here):
    with pytest.raises(InputError) as caught:
        fetch_package(far.as_uri(), here, pause=never)
    return str(caught.value)


def test_a_file_in_place_of_the_repository_is_refused(far, tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("")
    assert refused(far, file) == f"{file}: expected a folder of models, got a regular file"
    os.mkfifo(tmp_path / "fifo")
    assert refused(far, tmp_path / "fifo").endswith("expected a folder of models, got a FIFO")


def test_a_folder_that_cannot_be_made_is_named(far):
    here = Path("/proc/embershard")
    words = f"{here}/small: cannot make a folder in it: No such file or directory"
    assert refused(far, here) == words


def test_a_disk_that_is_full_from_the_first_file_on_is_said(far, here, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    expected = f"{here}/small/.fetching-1: no room: No space left on device; make room and run it"
    assert refused(far, here).startswith(expected)
