"""A damaged version here is found, and replaced by a whole one."""

import mmap
import os

import pytest

from embershard.errors import InputError, PackageError
from embershard.fetch import Selection, fetch_models, fetch_package, local
from embershard.package.labels import read_labels
from tests.cases import cases
from tests.cli.running import run
from tests.fetch.conftest import label, never, publish
from tests.fetch.watching import Watched

CHUNK = "tables/user/00001.safetensors"


def fetch(far, here, **options):
    return fetch_package(far.as_uri(), here, pause=never, **options)


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def flip(path):
    """Changes its last byte, in a file of its own: it may be a link of the remote's."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def extend(path):
    with path.open("ab") as stream:
        stream.write(b"x")


@pytest.fixture
def fetched(far, here):
    """Version 1, which is whole."""
    package = publish(far)
    fetch(far, here)
    return package, here / "small" / "1"


@cases(
    ("file", "damage", "words"),
    {
        "missing": (CHUNK, os.unlink, f"{CHUNK}: missing file"),
        "flipped": (CHUNK, flip, f"{CHUNK}: sha256: expected "),
        "shorter": (CHUNK, cut, f"{CHUNK}: bytes: expected "),
        "unexpected": ("tables/more", lambda path: path.write_text("x"), "unexpected file"),
        "manifest-flipped": ("manifest.json", flip, "manifest.json: sha256: expected "),
        "manifest-missing": ("manifest.json", os.unlink, "manifest.json: missing file"),
        "digest-missing": ("manifest.sha256", os.unlink, "manifest.sha256: missing file"),
        "digest-flipped": ("manifest.sha256", flip, "manifest.sha256: expected what "),
    },
)
def test_a_damaged_version_here_is_replaced_by_a_whole_one(far, here, fetched, file, damage, words):
    package, folder = fetched
    damage(folder / file)
    again = fetch(far, here)
    assert words in again.damage
    assert not again.is_new
    assert content(folder) == content(package)
    assert sorted(os.listdir(here / "small")) == ["1"]  # Nothing else is left.
    assert again.fetched_bytes == ((package / CHUNK).stat().st_size if file == CHUNK else 0)


def test_leftovers_of_a_replaced_version_are_removed(far, here, fetched):
    left = here / "small" / ".fetching-1" / "package"
    left.mkdir(parents=True)
    (left / "manifest.json").write_text("damaged")
    assert fetch(far, here).damage == ""
    assert sorted(os.listdir(here / "small")) == ["1"]


def test_a_whole_version_here_is_left_as_it_is(far, here, fetched):
    _, folder = fetched
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    again = fetch(far, here)
    assert (again.damage, again.is_new, again.fetched_bytes) == ("", False, 0)
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before


def test_who_has_mapped_a_damaged_version_keeps_what_is_mapped(far, here, fetched):
    _, folder = fetched
    flip(folder / CHUNK)
    damaged = (folder / CHUNK).read_bytes()
    with (folder / CHUNK).open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
    fetch(far, here)
    with mapped:
        assert mapped[:] == damaged
    assert (folder / CHUNK).read_bytes() != damaged


def test_a_label_does_not_move_to_a_version_beyond_repair(far, here, fetched):
    package, folder = fetched
    publish(far, 2)
    label(far, stable=2)
    fetch_models(far.as_uri(), here, Selection(model="small"), pause=never)
    label(far, stable=1)
    (folder / CHUNK).unlink()
    (package / CHUNK).unlink()
    flip(here / "small" / "2" / CHUNK)  # The fetch would copy it from this version otherwise.
    with pytest.raises((InputError, PackageError)):
        fetch(far, here)
    assert read_labels(here / "small") == {"stable": 2}


def test_the_command_says_what_was_damaged(far, here, fetched):
    _, folder = fetched
    (folder / CHUNK).unlink()
    ended = run("fetch", far.as_uri(), here, "--version", 1)
    first, second = ended.stdout.splitlines()
    assert first == f"{folder} was damaged and has been replaced: {CHUNK}: missing file"
    assert second.startswith(f"small 1 is in {folder}: ")
    assert len(run("fetch", far.as_uri(), here, "--version", 1).stdout.splitlines()) == 1


def test_a_watch_replaces_a_damaged_version_and_refreshes(far, here, fetched):
    package, folder = fetched
    watched = Watched(far, here)
    assert watched.poll() == ["refreshed"]
    extend(folder / CHUNK)
    assert watched.poll() == ["repaired", "refreshed"]
    assert watched.events[0][1]["message"].startswith(f"{CHUNK}: bytes: expected ")
    assert content(folder) == content(package)
    flip(folder / CHUNK)
    assert watched.poll() == ["repaired", "refreshed"]
    assert watched.poll() == []


def test_a_watch_reads_a_version_once_and_then_only_changes(far, here, monkeypatch):
    read = []
    check = local.check_hash
    monkeypatch.setattr(local, "check_hash", lambda *value: read.append(value[1]) or check(*value))
    publish(far)
    fetch(far, here)
    assert not read  # The file was hashed during its download.
    watched = Watched(far, here)
    watched.poll()
    assert CHUNK in read
    read.clear()
    watched.poll()
    assert not read
    os.utime(here / "small" / "1" / CHUNK)
    watched.poll()
    assert read == [CHUNK]
    publish(far, 2)
    watched.poll()
    read.clear()
    watched.poll()
    assert not read
