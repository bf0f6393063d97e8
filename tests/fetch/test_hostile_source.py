"""A remote server that sends without end, says nothing, or has no regular file."""

import contextlib
import http.server
import json
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from embershard.errors import ConfigError, PackageError, UnavailableError
from embershard.fetch import Selection, Source, fetch_models, fetch_package, file_systems, source
from embershard.fetch.models import choose_versions
from tests.cases import cases, refused
from tests.cli.running import run
from tests.fetch.conftest import BUCKET, label, never, publish
from tests.fetch.test_without_ranges import web_server

PIECE = b'<a href="1/">1</a>' * 1000


@pytest.fixture
def endless(far):
    """A web server whose answers to some paths never end; yields its URL, the set of these paths,
    and the bytes of each such answer."""
    paths, sent = set(), []

    class Endless(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path not in paths:
                super().do_GET()
                return
            start = self.headers.get("Range", "")
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            sent.append(0)
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(PIECE)
                    sent[-1] += len(PIECE)

        def log_message(self, *_):
            pass

    far.mkdir(exist_ok=True)
    with web_server(Endless, far) as url:
        yield url, paths, sent


@pytest.mark.parametrize("path", ["/", "/small/"])
def test_an_endless_listing_is_refused(far, here, endless, monkeypatch, path):
    monkeypatch.setattr(file_systems, "LISTING_BYTES_MAX", 1 << 20)
    publish(far)
    url, paths, sent = endless
    paths.add(path)
    with refused(PackageError, "listing", "got more"):
        fetch_package(url, here, pause=never)
    assert len(sent) == 1
    assert sent[0] < 64 << 20  # Bytes in the sockets' buffers come on top of the limit.


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("small/labels.json", ["small/labels.json: bytes", "got more"]),
        ("small/1/manifest.sha256", ["small/1/manifest.sha256:"]),
        ("small/1/programs/dense.pt", ["small/1/programs/dense.pt: bytes", "got"]),
    ],
)
def test_an_endless_file_is_refused(far, here, endless, file, parts):
    publish(far)
    url, paths, sent = endless
    paths.add(f"/{file}")
    with refused(PackageError, *parts):
        fetch_package(url, here, model="small", pause=never)
    assert max(sent) < 64 << 20
    assert not (here / "small" / "1").exists()


def test_an_endless_answer_to_a_range_is_refused(far, here, endless):
    """An interrupted fetch left the first bytes of a file."""
    package = publish(far)
    file = "programs/dense.pt"
    digest = json.loads((package / "manifest.json").read_text())["files"][file]["sha256"]
    parts = here / "small" / ".fetching-1" / "parts"
    parts.mkdir(parents=True)
    (parts / digest).write_bytes((package / file).read_bytes()[:3])
    url, paths, sent = endless
    paths.add(f"/small/1/{file}")
    with refused(PackageError, "small/1/programs/dense.pt: bytes", "got"):
        fetch_package(url, here, model="small", version=1, pause=never)
    assert len(sent) == 2  # From byte 3, then from the beginning.
    assert max(sent) < 64 << 20


class Silent(http.server.BaseHTTPRequestHandler):
    """Sends the head of an answer, some bytes, and no more until the test is over."""

    over = threading.Event()

    def __init__(self, *arguments, directory):
        super().__init__(*arguments)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"stable": ')
        self.over.wait(60)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("selection", [Selection(), Selection(model="small")])
def test_a_server_that_falls_silent_ends_at_the_stall_timeout(far, here, selection):
    far.mkdir()
    Silent.over.clear()
    with web_server(Silent, far) as url:
        with refused(UnavailableError, "a byte within 0.2 s (--stall-timeout); run"):
            fetch_models(url, here, selection, stall_seconds=0.2, pause=never)
        Silent.over.set()


@pytest.mark.parametrize("protocol", ["http", "s3"])
@pytest.mark.parametrize("selection", [Selection(), Selection(model="small")])
def test_a_server_that_never_answers_ends_at_the_stall_timeout(
    here, store, monkeypatch, protocol, selection
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if protocol == "s3":
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            url = store.url
        with refused(UnavailableError, "a byte within 0.2 s (--stall-timeout); run"):
            fetch_models(url, here, selection, stall_seconds=0.2, pause=never)


def test_a_small_file_that_comes_too_slowly_is_given_up(far, monkeypatch):
    """The second of its two blocks comes behind the timeout."""
    monkeypatch.setattr(source, "BLOCK_BYTES", 8)
    publish(far)
    label(far, stable=1)
    times = iter([0.0, 9.0, 10.1])
    slow = Source(far.as_uri(), stall_seconds=10, pause=never, clock=lambda: next(times))
    with refused(UnavailableError, "labels.json"):
        choose_versions(slow, Selection(), "small")


def test_a_listing_that_comes_too_slowly_is_given_up(far, web):
    publish(far)
    times = iter([0.0, 10.1])
    slow = Source(web.url, stall_seconds=10, pause=never, clock=lambda: next(times))
    with refused(UnavailableError, "listing"):
        slow.names("")


@cases(
    ("tokens", "entries", "words"),
    {
        "repeated-token": ("aba", 0, "another page, got the same again"),
        "empty-pages": ("abcd", 0, "at most 3 pages, got more"),
        "repeated-entries": ("abcd", 2, "at most 3 entries, got more"),
    },
)
def test_a_bucket_whose_listing_never_ends_is_refused(monkeypatch, tokens, entries, words):
    monkeypatch.setattr(file_systems, "PAGES_MAX", 3)
    monkeypatch.setattr(file_systems, "LISTED_MAX", 3)
    pages = (
        {"NextContinuationToken": token, "Contents": [{"Key": "same"}] * entries}
        for token in tokens
    )
    files = SimpleNamespace(
        config_kwargs={},
        split_path=lambda path: (path, "", None),
        call_s3=lambda *_, **__: next(pages),
    )
    with refused(PackageError, "bucket: listing"):
        file_systems._S3(files, stall_seconds=1).folders("bucket")


def test_a_bucket_of_too_many_entries_is_refused(far, here, store, monkeypatch):
    monkeypatch.setattr(file_systems, "LISTED_MAX", 2)
    publish(far)
    for model in ("a", "b"):
        publish(far, model=model)
    store.put(far)
    with refused(PackageError, f"{BUCKET}/repository: listing"):
        fetch_package(store.url, here, pause=never)


@cases(
    ("make", "kind"),
    {
        "fifo": (os.mkfifo, "a FIFO"),
        "folder": (os.mkdir, "a folder"),
    },
)
@pytest.mark.parametrize("file", ["labels.json", "1/manifest.sha256", "1/programs/dense.pt"])
def test_a_file_of_another_kind_is_refused_by_its_kind(far, here, file, make, kind):
    publish(far)
    path = far / "small" / file
    path.unlink(missing_ok=True)
    make(path)
    with refused(PackageError, f"small/{file}", f"got {kind}"):
        fetch_package(far.as_uri(), here, pause=never)


def test_the_command_takes_the_stall_timeout(here):
    ended = run("fetch", "http://127.0.0.1:9/", here, "--stall-timeout", 0)
    assert ended.returncode == 1
    assert "ConfigError: stall timeout: expected seconds above 0, got 0" in ended.stderr
    with refused(ConfigError, "stall timeout", "got inf"):
        Source("file:///repository", stall_seconds=float("inf"))
