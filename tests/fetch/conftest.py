"""Far sides: a folder, an object store that moto plays, and a web server that breaks off."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from embershard.package import PackageWriter
from tests.package.building import fill

BUCKET = "models"
CHUNK_BYTES = 8192
ROWS = np.random.default_rng(0).integers(0, 256, (3000, 8), np.uint8)
"""Random rows, so that no two chunks are equal."""


def publish(repository: Path, version: int = 1, rows=ROWS, *, model: str = "small") -> Path:
    """``<repository>/<model>/<version>``, its table in chunks of some kilobytes."""
    with PackageWriter(repository / model / str(version), chunk_bytes_max=CHUNK_BYTES) as writer:
        return writer.publish(replace(fill(writer, [rows], version=version), model=model))


def label(repository: Path, *, model: str = "small", **labels: int) -> None:
    """Replaces the labels of a model in one step."""
    scratch = repository / model / ".labels.json.new"
    scratch.write_text(json.dumps(labels))
    scratch.replace(repository / model / "labels.json")


def versions_in(repository: Path, model: str = "small") -> list[int]:
    return sorted(int(path.name) for path in (repository / model).iterdir() if path.name.isdigit())


def never(seconds: float) -> None:
    raise AssertionError(f"a pause of {seconds} s")


@dataclass
class Store:
    """An object store, and a folder to put there."""

    url: str
    client: object

    def put(self, repository: Path) -> None:
        for path in sorted(path for path in repository.rglob("*") if path.is_file()):
            key = f"repository/{path.relative_to(repository).as_posix()}"
            self.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


@pytest.fixture(scope="session")
def moto_address() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(moto_address, monkeypatch) -> Iterator[Store]:
    for name, value in {
        "AWS_ENDPOINT_URL": moto_address,
        "AWS_ACCESS_KEY_ID": "of-a-test",
        "AWS_SECRET_ACCESS_KEY": "of-a-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield Store(f"s3://{BUCKET}/repository", client)
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


@dataclass
class Web:
    """A web server over a folder that can break off its answers."""

    url: str
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the next answers with a chunk in them end, first to last."""
    ranges: bool = True
    dates: bool = True
    """True if answers say when a file has changed."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Answers ranges, as object stores and web servers do; http.server's own does not."""

    def __init__(self, web: Web, *arguments, **options) -> None:
        self.web = web
        super().__init__(*arguments, **options)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            super().do_GET()
            return
        if not path.is_file():
            self.send_error(404)
            return
        data, start = path.read_bytes(), 0
        request = self.headers.get("Range", "") if self.web.ranges else ""
        end = len(data)
        if request.startswith("bytes="):
            first, _, last = request.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1 if last else end, end)
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes" if self.web.ranges else "none")
        if self.web.dates:
            self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        if not with_body:
            return
        if "tables" in path.parts and self.web.cuts:
            end = min(end, start + self.web.cuts.pop(0))
            self.close_connection = True
        self.wfile.write(data[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def far(tmp_path) -> Path:
    """A folder of models on the remote."""
    return tmp_path / "far"


@pytest.fixture
def here(tmp_path) -> Path:
    """A repository of this machine."""
    return tmp_path / "here"


@pytest.fixture
def web(far) -> Iterator[Web]:
    far.mkdir(exist_ok=True)
    web = Web("")
    handler = functools.partial(Handler, web, directory=str(far))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield web
    server.shutdown()
    thread.join()
    server.server_close()
