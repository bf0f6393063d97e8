"""Fetching: whole or not at all, resumed, with what is here already; and what is said where not."""

import errno
import fcntl
import hashlib
import importlib
import json
import os
import shutil
import sys

import numpy as np
import pytest

from embershard.errors import (
    ConfigError,
    InputError,
    NotFoundError,
    PackageError,
    UnavailableError,
)
from embershard.fetch import fetch_package
from embershard.fetch import files as files_module
from embershard.fetch import source as source_module
from embershard.package import Package, check_signature, sign_package, verify_package
from tests.cases import cases, refused
from tests.cli.running import run
from tests.fetch.conftest import ROWS, never, publish
from tests.package.keys import write_keys


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks: each file has many."""
    monkeypatch.setattr(source_module, "BLOCK_BYTES", 1024)


def fetch(url, here, **options):
    return fetch_package(url, here, **{"pause": never, **options})


def listed(package):
    """Sizes of the files of a manifest, by digest."""
    files = json.loads((package / "manifest.json").read_text())["files"].values()
    return {file["sha256"]: file["bytes"] for file in files}


def total(package):
    files = json.loads((package / "manifest.json").read_text())["files"].values()
    return sum(file["bytes"] for file in files)


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Interrupted(KeyboardInterrupt):
    pass


def interrupt_at(share):
    """A progress function that interrupts the fetch after a share of its bytes, as Ctrl-C does."""

    def progress(done, total):
        if done >= share * total:
            raise Interrupted

    return progress


@pytest.fixture(params=["file", "s3", "http"])
def served(request, far):
    """A remote of each kind, and how what changes in its folder gets there."""
    if request.param == "file":
        return f"file://{far}", lambda: None
    if request.param == "http":
        return request.getfixturevalue("web").url, lambda: None
    store = request.getfixturevalue("store")
    return store.url, lambda: store.put(far)


def test_what_comes_is_what_is_there(far, here, served):
    package = publish(far)
    url, update = served
    update()
    seen = []
    fetched = fetch(url, here, progress=lambda *both: seen.append(both))
    assert content(here / "small" / "1") == content(package)
    assert (fetched.model, fetched.version) == ("small", 1)
    assert fetched.folder == here / "small" / "1"
    assert fetched.fetched_bytes == total(package)
    assert (fetched.reused_bytes, fetched.resumed_bytes) == (0, 0)
    assert [path.name for path in (here / "small").iterdir()] == ["1"]  # Nothing else is left.
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (total(package), total(package))


def test_the_highest_version_is_taken_unless_one_is_named(far, here, served):
    for version in (2, 10, 9):
        publish(far, version)
    url, update = served
    update()
    assert fetch(url, here).version == 10
    assert fetch(url, here, model="small", version=9).version == 9


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_a_fetch_that_was_interrupted_goes_on_where_it_stopped(far, here, served, share):
    package = publish(far)
    url, update = served
    update()
    with pytest.raises(Interrupted):
        fetch(url, here, progress=interrupt_at(share))
    assert not (here / "small" / "1").exists()
    fetched = fetch(url, here)
    assert fetched.resumed_bytes >= share * total(package)
    assert fetched.resumed_bytes > 0
    assert fetched.fetched_bytes == total(package) - fetched.resumed_bytes
    assert content(here / "small" / "1") == content(package)


def test_files_that_another_version_has_are_linked(far, here, served):
    url, update = served
    publish(far)
    rows = ROWS.copy()
    rows[-1] = 7
    second = publish(far, 2, rows)
    update()
    fetch(url, here, version=1)
    first, new = listed(here / "small" / "1"), listed(second)
    shared = first.keys() & new.keys()
    assert len(shared) >= 3  # All chunks but the last, the vocabulary, ...
    fetched = fetch(url, here, version=2)
    assert fetched.reused_bytes == sum(new[digest] for digest in shared)
    assert fetched.fetched_bytes == sum(new[digest] for digest in new.keys() - shared)
    chunk = "tables/user/00000.safetensors"
    assert (here / "small/1" / chunk).samefile(here / "small/2" / chunk)
    verify_package(here / "small" / "2")


def test_a_damaged_file_here_is_not_taken(far, here):
    publish(far)
    second = publish(far, 2)
    fetch(f"file://{far}", here, version=1)
    chunk = here / "small/1/tables/user/00000.safetensors"
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    fetched = fetch(f"file://{far}", here, version=2)
    assert fetched.fetched_bytes >= len(data)
    assert content(here / "small" / "2") == content(second)


@pytest.mark.parametrize("change", ["flipped", "longer", "shorter"])
def test_a_file_damaged_there_is_refused_and_nothing_appears(far, here, served, change):
    package = publish(far)
    chunk = package / "tables/user/00001.safetensors"
    whole = chunk.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    chunk.write_bytes({"flipped": flipped, "longer": whole + b"x", "shorter": whole[:-1]}[change])
    url, update = served
    update()
    field = "sha256" if change == "flipped" else "bytes"
    with refused(PackageError, f"/small/1/tables/user/00001.safetensors: {field}"):
        fetch(url, here)
    assert not (here / "small" / "1").exists()
    chunk.write_bytes(whole)
    update()
    assert fetch(url, here).resumed_bytes > 0
    assert content(here / "small" / "1") == content(package)


def test_a_part_that_is_damaged_here_comes_again(far, here):
    package = publish(far)
    with pytest.raises(Interrupted):
        fetch(f"file://{far}", here, progress=interrupt_at(0.3))
    parts = list((here / "small/.fetching-1/parts").iterdir())
    assert len(parts) == 1
    parts[0].write_bytes(b"x" * parts[0].stat().st_size)
    fetch(f"file://{far}", here)
    assert content(here / "small" / "1") == content(package)


def unfinished(here, package, file):
    """The folder of a fetch that was interrupted, and in it the part of a file."""
    work = here / "small" / ".fetching-1"
    (work / "parts").mkdir(parents=True)
    return work, work / "parts" / hashlib.sha256((package / file).read_bytes()).hexdigest()


CHUNK = "tables/user/00000.safetensors"


def test_what_an_unfinished_fetch_left_of_other_files_is_removed(far, here):
    package = publish(far)
    work, part = unfinished(here, package, CHUNK)
    part.write_bytes(bytes((package / CHUNK).stat().st_size + 1))
    (work / "package" / "tables").mkdir(parents=True)
    (work / "package" / "tables" / "of-another-manifest").write_text("x")
    assert fetch(f"file://{far}", here).resumed_bytes == 0
    assert content(here / "small" / "1") == content(package)


def test_a_file_that_is_shorter_there_than_what_came_is_refused(far, here, served):
    package = publish(far)
    whole = (package / CHUNK).read_bytes()
    _, part = unfinished(here, package, CHUNK)
    part.write_bytes(whole[:6000])
    (package / CHUNK).write_bytes(whole[:5000])
    url, update = served
    update()
    with refused(PackageError, f"/small/1/{CHUNK}: bytes", len(whole), "got 5000"):
        fetch(url, here)


def test_an_error_of_the_file_system_is_not_called_a_full_disk(far, here):
    _, part = unfinished(here, publish(far), CHUNK)
    part.mkdir()
    with pytest.raises(IsADirectoryError):
        fetch(f"file://{far}", here)


def test_a_damaged_version_beside_it_does_not_stop_a_fetch(far, here):
    package = publish(far)
    (here / "small" / "7").mkdir(parents=True)  # Without a manifest.
    fetch(f"file://{far}", here)
    assert content(here / "small" / "1") == content(package)


def test_a_connection_that_breaks_off_is_taken_up_again(far, here, web):
    package = publish(far)
    web.cuts += [100, 700, 1]
    pauses = []
    fetched = fetch(web.url, here, model="small", version=1, pause=pauses.append)
    assert web.cuts == []
    assert len(pauses) == 3
    assert fetched.fetched_bytes == total(package)
    assert content(here / "small" / "1") == content(package)


def test_a_server_without_ranges_will_do(far, here, web):
    package = publish(far)
    web.ranges = False
    with pytest.raises(Interrupted):
        fetch(web.url, here, progress=interrupt_at(0.5))
    assert fetch(web.url, here).resumed_bytes > 0
    assert content(here / "small" / "1") == content(package)


def test_attempts_end_and_the_next_fetch_goes_on(far, here, web):
    package = publish(far)
    web.cuts += [0] * 1000
    pauses = []
    with refused(UnavailableError, "tables/user/", ": 5 attempts failed", "run it again"):
        fetch(web.url, here, pause=pauses.append)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    web.cuts.clear()
    assert fetch(web.url, here).resumed_bytes > 0
    assert content(here / "small" / "1") == content(package)


def test_a_server_that_is_gone_is_said(far, here):
    pauses = []
    with refused(UnavailableError, "5 attempts failed"):
        fetch("http://127.0.0.1:9", here, model="small", version=1, pause=pauses.append)
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_a_full_disk_is_said_and_the_next_fetch_goes_on(far, here, file_limit):
    package = publish(far)
    with (
        file_limit(6000),  # Less than a chunk.
        refused(InputError, "no room: File too large; make room and run it again"),
    ):
        fetch(f"file://{far}", here)
    assert not (here / "small" / "1").exists()
    fetched = fetch(f"file://{far}", here)
    assert fetched.resumed_bytes >= 6000
    assert content(here / "small" / "1") == content(package)


def test_a_disk_without_room_is_refused_before_anything_comes(far, here, monkeypatch):
    package = publish(far)
    usage = shutil.disk_usage(far)._replace(free=1000)
    monkeypatch.setattr(files_module.shutil, "disk_usage", lambda _: usage)
    with refused(InputError, f"{total(package):,}", "1,000"):
        fetch(f"file://{far}", here)
    assert list((here / "small/.fetching-1/parts").iterdir()) == []


def test_one_that_is_here_is_left_as_it_is(far, here):
    publish(far)
    fetch(f"file://{far}", here)
    before = (here / "small/1/manifest.json").stat()
    fetched = fetch(f"file://{far}", here)
    assert (fetched.fetched_bytes, fetched.reused_bytes, fetched.resumed_bytes) == (0, 0, 0)
    assert (here / "small/1/manifest.json").stat() == before


def test_another_package_of_the_same_number_is_refused(far, here):
    publish(far)
    publish(here, rows=np.zeros_like(ROWS))
    before = content(here)
    with refused(InputError, "another package than", "has under this number"):
        fetch(f"file://{far}", here)
    assert content(here) == before


def test_a_version_published_again_meanwhile_is_fetched_anew(far, here):
    publish(far)
    with pytest.raises(Interrupted):
        fetch(f"file://{far}", here, progress=interrupt_at(0.9))
    shutil.rmtree(far)
    package = publish(far, rows=ROWS[:1500])  # Fewer chunks.
    fetch(f"file://{far}", here)
    assert content(here / "small" / "1") == content(package)


def test_two_at_once_are_refused(far, here):
    publish(far)
    work = here / "small" / ".fetching-1"
    work.mkdir(parents=True)
    descriptor = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with refused(InputError, "another fetch of this version is running"):
            fetch(f"file://{far}", here)
    finally:
        os.close(descriptor)
    fetch(f"file://{far}", here)


def test_one_that_ends_while_another_begins_is_told(far, here, monkeypatch):
    publish(far)
    work = here / "small" / ".fetching-1"
    open_folder = os.open

    def open_too_late(path, *arguments, **options):
        if path == work:
            work.rmdir()
        return open_folder(path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_too_late)
    with refused(InputError, "another fetch of this version has just ended"):
        fetch(f"file://{far}", here)


@cases(
    ("damage", "words"),
    {
        "of-another-manifest": ("digest", "manifest.json: sha256: expected"),
        "moved": ("version", "manifest.json"),
        "half": ("half", "programs/dense.pt"),
        "no-manifest": ("no-manifest", "manifest.json"),
    },
)
def test_a_folder_there_that_is_no_package_is_refused(far, here, damage, words):
    package = publish(far)
    if damage == "digest":
        other = hashlib.sha256(b"").hexdigest()
        (package / "manifest.sha256").write_text(f"{other}  manifest.json\n")
    elif damage == "version":
        package.rename(far / "small" / "3")
    elif damage == "half":
        (package / "programs/dense.pt").unlink()
    else:
        (package / "manifest.json").unlink()
    with refused((PackageError, NotFoundError), words):
        fetch(f"file://{far}", here)
    assert not [path for path in here.glob("*/*") if not path.name.startswith(".")]


@cases(
    ("options", "words"),
    {
        "no-model": ({"model": "large"}, "/large"),
        "no-version": ({"version": 7}, "small/7/manifest.sha256"),
    },
)
def test_what_is_not_there_is_said(far, here, served, options, words):
    publish(far)
    url, update = served
    update()
    with refused(NotFoundError, words):
        fetch(url, here, **options)


def test_of_several_models_one_must_be_named(far, here):
    publish(far)
    publish(far, model="large")
    with refused(NotFoundError, "got large, small"):
        fetch(f"file://{far}", here)
    assert fetch(f"file://{far}", here, model="small").version == 1


def test_urls_that_cannot_be_read_are_refused(here, monkeypatch):
    with refused(ConfigError, "url", "is file:///"):
        fetch("repository", here)
    for url in ("file://", "file:///", "s3://"):
        with refused(ConfigError, f"got '{url}'"):
            fetch(url, here)
    with refused(ConfigError, "Protocol not known: nosuch"):
        fetch("nosuch://repository", here)
    with refused(ConfigError, "http://[bad/"):
        fetch("http://[bad", here)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with refused(ConfigError, "fsspec is missing", "pip install 'embershard[fetch]'"):
        fetch("file:///repository", here)


def test_a_protocol_whose_package_is_missing_is_named(here, monkeypatch):
    registry = importlib.import_module("fsspec.registry")
    monkeypatch.delitem(registry._registry, "gs", raising=False)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with refused(ConfigError, "gs://models: a Python package for this", "gcsfs"):
        fetch("gs://models", here)


def test_keys_that_are_refused_are_not_tried_again(far, here, monkeypatch):
    publish(far)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Forbidden")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.open", refuse)
    with refused(UnavailableError, "access denied:", "Forbidden; check the credentials"):
        fetch(f"file://{far}", here, model="small", version=1)


def test_the_command_says_what_it_did(far, here):
    package = publish(far)
    ended = run("fetch", f"file://{far}", here, "--version", 1)
    assert (ended.returncode, ended.stdout) == (
        0,
        f"small 1 is in {here}/small/1: {total(package):,} bytes fetched, 0 reused\n",
    )
    assert Package.open(here / "small" / "1").manifest.version == 1
    failed = run("fetch", f"file://{far}", here, "--model", "large")
    assert failed.returncode == 1
    assert failed.stderr.startswith("embershard fetch: NotFoundError: file://")


def test_a_fetch_that_asks_for_a_signature_downloads_it(tmp_path, here):
    there = tmp_path / "there"
    keys, stranger = write_keys(tmp_path), write_keys(tmp_path, "stranger")
    package = publish(there)
    with refused(ConfigError, "trusted_key"):
        fetch(there.as_uri(), here, trusted_key="")
    with refused(PackageError, "small/1.sig: file"):
        fetch(there.as_uri(), here, trusted_key=keys.public)
    sign_package(package, stranger.private)
    with refused(PackageError, "small/1.sig: signature"):
        fetch(there.as_uri(), here, trusted_key=keys.public)
    assert not here.exists()
    signature = sign_package(package, keys.private)
    fetch(there.as_uri(), here, trusted_key=keys.public)
    assert (here / "small" / "1.sig").read_bytes() == signature.read_bytes()
    check_signature(here / "small" / "1", keys.public)
    # One that is here already gets it, too.
    (here / "small" / "1.sig").unlink()
    fetch(there.as_uri(), here, trusted_key=keys.public)
    check_signature(here / "small" / "1", keys.public)
