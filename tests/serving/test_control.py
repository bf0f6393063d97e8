"""The socket for orders: whatever comes on it is answered."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from embershard.errors import ConfigError, InternalError, UnavailableError
from embershard.serving import control
from embershard.serving.control import Control, order
from tests.cli.running import run


@pytest.mark.parametrize(
    "line",
    [b"", b"nonsense\n", b"[]\n", b'{"order": "stop"}\n', b'{"order": "load", "model": 1}\n',
     b'{"order": "load", "version": -1}\n', b'{"order": "index", "more": 1}\n',
     b"[" * 10_000 + b"\n", b'{"order": ["load"]}\n', b'{"order": {}}\n', b'{"order": null}\n',
     b'{"order": "load"}\n', b'{"order": "unload", "version": 1}\n',
     b'{"order": "load", "model": "\\ud800"}\n', b'{"order": "load", "model": "\\u001b[2J"}\n',
     b'{"order": "load", "version": 1e400}\n', b'{"order": "load", "replace": 1}\n',
     b'"\xff"\n', b'{"\\ud800": 1, "order": "index"}\n'],
    ids=["empty", "no-json", "no-object", "unknown", "type", "negative", "key", "deep",
         "order-is-a-list", "order-is-an-object", "order-is-null",
         "load-of-no-model", "unload-of-no-model", "lone-surrogate",
         "control-character", "infinite-version", "replace-is-a-number", "no-utf8",
         "key-is-a-lone-surrogate"],
)  # fmt: skip
def test_an_order_of_another_form_is_refused(line, tmp_path):
    class Nothing:
        def index(self):
            return []

    with Control(Nothing(), tmp_path / "control"), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "control"))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        answer = json.loads(connection.makefile("rb").readline())
    assert answer["error"] == "ConfigError"
    assert answer["message"].startswith("control: ")


def test_an_order_that_fails_with_a_bug_is_answered_and_logged(tmp_path, caplog):
    class Broken:
        def index(self):
            raise TypeError("no index")

        def refresh(self):
            raise RuntimeError("a bug")

    with Control(Broken(), tmp_path / "control"):
        with pytest.raises(InternalError, match=r"^control: RuntimeError: a bug$"):
            order(tmp_path / "control", {"order": "refresh"})
        with pytest.raises(InternalError, match=r"^control: TypeError: no index$"):
            order(tmp_path / "control", {"order": "index"})
    assert "RuntimeError: a bug" in caplog.text


@pytest.mark.parametrize(
    "line",
    [b"HTTP/1.1 400 Bad Request\n", b"[]\n", b'{"error": "x", "message": 1}\n', b"\xff\n"],
    ids=["http", "list", "message-is-a-number", "no-utf8"],
)
def test_a_socket_of_another_program_is_named_as_such(line, tmp_path):
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as beside:
        listening.bind(str(path))
        listening.listen()

        def answer():
            with listening.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(line)

        beside.submit(answer)
        with pytest.raises(
            UnavailableError, match="expected the answer of a server to an order, got"
        ):
            order(path, {"order": "index"})


@pytest.mark.parametrize("kind", ["NoSuchError", "EmbershardErrors", "annotations", ["x"]])
def test_an_error_of_an_unknown_kind_is_an_internal_error(kind, tmp_path):
    class Odd:
        def index(self):
            return []

        def refresh(self):
            return {"error": kind, "message": "later"}

    with Control(Odd(), tmp_path / "control"), pytest.raises(InternalError, match=r"^later$"):
        order(tmp_path / "control", {"order": "refresh"})


def test_control_characters_of_an_index_are_escaped(tmp_path):
    entry = {"model": "ranker", "version": 1, "labels": [], "is_default": True, "state": "failed"}

    class Failed:
        def index(self):
            return [{**entry, "reason": "\x1b[2J gone\r"}]

        def refresh(self):
            return {"seconds": 0.0, "unserved_seconds": 0.0}

    with Control(Failed(), tmp_path / "control"):
        ended = run("load", tmp_path / "control")
    assert (
        ended.stdout.splitlines()[0]
        == r"ranker 1                 failed: \u001b[2J gone\r  default"
    )


class Idle:
    def index(self):
        return []


def test_a_socket_is_made_where_nothing_else_is(tmp_path):
    path = tmp_path / "control"
    with Control(Idle(), path), pytest.raises(ConfigError, match=f"a server listens on {path}$"):
        Control(Idle(), path)
    path.write_text("notes")
    with pytest.raises(ConfigError, match=f"^control: {path} exists and is not a socket$"):
        Control(Idle(), path)
    missing = tmp_path / "no" / "control"
    with pytest.raises(UnavailableError, match=f"cannot listen on {missing}: No such file or dire"):
        Control(Idle(), missing)
    with pytest.raises(UnavailableError, match=r"cannot listen on .*: AF_UNIX path too long$"):
        Control(Idle(), tmp_path / ("x" * 200))


def test_a_server_that_does_not_answer_in_time_is_unavailable(tmp_path):
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(UnavailableError, match=r"control: no answer within 0\.05 s$"):
            order(path, {"order": "index"}, timeout_seconds=0.05)


def test_a_caller_that_sends_nothing_is_not_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(control._Handler, "timeout", 0.05)
    with Control(Idle(), tmp_path / "control"), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "control"))
        assert connection.recv(1) == b""


def test_an_answer_that_is_no_json_is_logged(tmp_path, caplog):
    class Odd(Idle):
        def refresh(self):
            return {"seconds": object()}

    with Control(Odd(), tmp_path / "control"), pytest.raises(UnavailableError):
        order(tmp_path / "control", {"order": "refresh"})
    assert caplog.messages == ["control: a connection failed"]
