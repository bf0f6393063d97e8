"""Web servers that know no ranges: they send whole files, and fetching works without resume."""

import functools
import http.server
import threading
from contextlib import contextmanager

import pytest

from embershard.errors import UnavailableError
from embershard.fetch import fetch_package
from embershard.fetch import source as source_module
from embershard.package import verify_package
from tests.cases import refused
from tests.fetch.conftest import never, publish


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A file has several blocks."""
    monkeypatch.setattr(source_module, "BLOCK_BYTES", 1024)


class Whole(http.server.SimpleHTTPRequestHandler):
    """Like `python -m http.server`: ignores Range, and does not mention ranges."""

    def log_message(self, *_):
        pass


class WithoutLength(Whole):
    """Closes the connection at the end of a file, and sends it in small pieces."""

    def send_header(self, name, value):
        if name != "Content-Length":
            super().send_header(name, value)

    def copyfile(self, source, outputfile):
        while piece := source.read(700):
            outputfile.write(piece)
            outputfile.flush()


class WithoutHead(Whole):
    def do_HEAD(self):
        self.send_error(501)


class Forbidden(Whole):
    def do_GET(self):
        self.send_error(403)

    def do_HEAD(self):
        self.send_error(403)


@contextmanager
def web_server(handler, folder):
    bound = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("handler", [Whole, WithoutLength, WithoutHead])
def test_fetches_from_a_server_that_ignores_ranges(far, tmp_path, handler):
    publish(far)
    with web_server(handler, far) as url:
        fetched = fetch_package(url, tmp_path / "here", pause=never)
    assert (fetched.model, fetched.version, fetched.resumed_bytes) == ("small", 1, 0)
    verify_package(tmp_path / "here" / "small" / "1")


class Interrupted(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("handler", [Whole, WithoutLength])
def test_an_interrupted_fetch_completes_when_it_is_run_again(far, tmp_path, handler):
    def interrupt(done, total):
        if done >= total / 3:
            raise Interrupted

    publish(far)
    with web_server(handler, far) as url:
        with pytest.raises(Interrupted):
            fetch_package(url, tmp_path / "here", pause=never, progress=interrupt)
        fetch_package(url, tmp_path / "here", pause=never)
    verify_package(tmp_path / "here" / "small" / "1")


def test_a_server_that_forbids_is_not_asked_again(far, tmp_path):
    publish(far)
    with (
        web_server(Forbidden, far) as url,
        refused(UnavailableError, "access denied:", "check the credentials"),
    ):
        fetch_package(url, tmp_path / "here", model="small", version=1, pause=never)
