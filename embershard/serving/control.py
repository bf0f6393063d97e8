"""A Unix socket through which commands on this machine load and unload models.

The client sends one line of JSON, the server answers with one, and the connection ends:

    {"order": "load", "model": "ranker", "version": 4, "replace": false}
    {"seconds": 3.2, "unserved_seconds": 0.0, "index": [{"model": "ranker", ...}, ...]}

Orders are ``load`` and ``unload`` (see `Server` for version 0), ``refresh`` and ``index``. The
answer to a failed order is ``{"error": "PackageError", "message": "...", "index": [...]}``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import socketserver
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from embershard import errors
from embershard.errors import ConfigError, EmbershardError, InternalError, UnavailableError
from embershard.serving.reports import LoadCost

if TYPE_CHECKING:
    from embershard.serving import Server

LOG = logging.getLogger(__name__)

LINE_MAX: Final = 64 << 10
READ_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 20
KEYS: Final = {
    "load": {"model", "version", "replace"},
    "unload": {"model", "version"},
    "refresh": set(),
    "index": set(),
}


class Control:
    """Runs orders on its own threads until `close`. Only the owner of the socket may connect."""

    def __init__(self, server: Server, path: Path) -> None:
        """Replaces a socket left behind by an ended server.

        Raises ConfigError if the path is not a socket or a server listens on it, UnavailableError
        if the socket cannot be made.
        """
        _remove_stale_socket(path)
        self._path = path
        before = os.umask(0o177)  # A later chmod would let others connect before it.
        try:
            self._sockets = _Sockets(str(path), _Handler)
        except OSError as error:
            raise UnavailableError(
                f"control: cannot listen on {path}: {error.strerror or error}"
            ) from error
        finally:
            os.umask(before)
        self._sockets.server = server
        self._thread = threading.Thread(
            target=self._sockets.serve_forever, args=(0.1,), name="embershard-control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop taking orders. Safe to repeat."""
        self._sockets.shutdown()
        self._thread.join()
        self._sockets.server_close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def order(
    path: Path, document: dict[str, Any], *, timeout_seconds: float | None = None
) -> dict[str, Any]:
    """Send an order (see the top of the file) to the server on a socket. Return its answer.

    A load may take hours, so ``timeout_seconds=None`` waits without a limit.

    Raises:
        UnavailableError: no server listens on the socket, it ended meanwhile, or the time is over.
        EmbershardError: the order failed. It has the class and message of the server's error.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            connection.sendall(json.dumps(document).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(ANSWER_BYTES_MAX)
    except TimeoutError as error:
        raise UnavailableError(f"{path}: no answer within {timeout_seconds} s") from error
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(
            f"{path}: no server listens on this control socket: {why}"
        ) from error
    if not line.endswith(b"\n"):
        raise UnavailableError(f"{path}: the server ended before it answered")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_server(path, line) from error
    if not (
        isinstance(answer, dict)
        and isinstance(answer.get("message", ""), str)
        and isinstance(answer.get("index"), list)
    ):
        raise _no_server(path, line)
    if "error" not in answer:
        return answer
    name = answer["error"]
    kind = vars(errors).get(name) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, EmbershardError)):
        kind = InternalError
    raise kind(answer.get("message", ""))


def _no_server(path: Path, line: bytes) -> UnavailableError:
    expected = "expected the answer of a server to an order, got"
    return UnavailableError(f"{path}: {expected} {line[:200]!r}")


class _Sockets(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 16
    server: Server

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a failed connection. Python's default writes to standard error."""
        LOG.exception("control: a connection failed")


class _Handler(socketserver.StreamRequestHandler):
    timeout = READ_SECONDS

    def handle(self) -> None:
        assert isinstance(self.server, _Sockets)
        controlled = self.server.server
        answer: dict[str, Any]
        try:
            answer = dict(_carry_out(controlled, _parse_order(self.rfile.readline(LINE_MAX))))
        except TimeoutError:
            return  # The client sent nothing.
        except Exception as error:
            answer = _failure(error)
        try:
            answer["index"] = controlled.index()
        except Exception as error:
            answer = {**_failure(error), **answer, "index": []}
        try:
            self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            return  # The client disconnected. Its order was carried out nevertheless.


def _failure(error: Exception) -> dict[str, Any]:
    """Every exception needs an answer, because the client waits for it."""
    if isinstance(error, EmbershardError):
        return {"error": type(error).__name__, "message": str(error)}
    LOG.error("control: an order failed", exc_info=error)
    return {"error": "InternalError", "message": f"control: {type(error).__name__}: {error}"}


def _parse_order(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError("control: expected one line of JSON") from error
    kind = document.pop("order", None) if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in KEYS or not KEYS[kind] >= set(document):
        raise ConfigError(f"control: expected an order of {', '.join(KEYS)}, got {line[:200]!r}")
    expected = {"model": str, "version": int, "replace": bool}
    for name, value in document.items():
        if type(value) is not expected[name]:
            raise ConfigError(f"control: {name}: expected {expected[name].__name__}, got {value!r}")
    model = document.get("model", "")
    if not model and "model" in KEYS[kind]:
        raise ConfigError("control: model: expected a name, got none")
    if not model.isprintable():
        raise ConfigError(f"control: model: expected printable characters, got {model!r}")
    if not 0 <= document.get("version", 0) < 1 << 63:
        raise ConfigError(f"control: version: expected 0..2**63-1, got {document['version']}")
    return {"order": kind, **document}


def _carry_out(server: Server, document: dict[str, Any]) -> LoadCost | dict[str, Any]:
    match document.pop("order"):
        case "load":
            return server.load(**document)
        case "unload":
            return server.unload(**document)
        case "refresh":
            return server.refresh()
    return {}


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"control: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"control: a server listens on {path}")
